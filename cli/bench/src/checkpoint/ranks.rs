//! Rank processes as the bench controls them: one JSON line per message.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rankguard_console::child::die_with_parent;

use super::messages::{RankReply, RankRequest};

/// Process of one rank.
#[derive(Debug)]
pub(super) struct RankProcess {
    child: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl RankProcess {
    /// Starts all ranks and waits until each has built its state.
    pub(super) fn start_all(world: u32, gib: f64, threads: usize, arenas: &[PathBuf]) -> io::Result<Vec<Self>> {
        let start = |rank: u32| {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(["bench", "checkpoint-rank", "--rank", &rank.to_string()])
                .args(["--world", &world.to_string(), "--gib", &gib.to_string()])
                .args(["--threads", &threads.to_string()]);
            for arena in arenas {
                command.arg("--arena").arg(arena);
            }
            let mut child = die_with_parent(&mut command)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let pipes = child.stdin.take().zip(child.stdout.take());
            let (say, hear) = pipes.expect("both were asked for");
            let hear = BufReader::new(hear);
            Ok(Self { child, say, hear })
        };
        let mut all = (0..world).map(start).collect::<io::Result<Vec<_>>>()?;
        for rank in &mut all {
            rank.receive()?;
        }
        Ok(all)
    }

    /// Sends a command to the rank.
    pub(super) fn send(&mut self, ask: &RankRequest) -> io::Result<()> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        self.say.write_all(&line)
    }

    /// Receives the result of a command.
    pub(super) fn receive(&mut self) -> io::Result<RankReply> {
        let mut line = String::new();
        if self.hear.read_line(&mut line)? == 0 {
            return Err(io::Error::other(
                "a rank of the bench ended early; is there memory for it?",
            ));
        }
        let told: RankReply = serde_json::from_str(&line)?;
        match told.problem {
            Some(problem) => Err(io::Error::other(problem)),
            None => Ok(told),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Runs one command on all ranks at the same time; returns their results.
pub(super) fn run_on_all(ranks: &mut [RankProcess], ask: impl Fn(usize) -> RankRequest) -> io::Result<Vec<RankReply>> {
    for (nth, rank) in ranks.iter_mut().enumerate() {
        rank.send(&ask(nth))?;
    }
    ranks.iter_mut().map(RankProcess::receive).collect()
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        // The rank ends when its input ends; its exit status is not needed.
        if self.send(&RankRequest::End).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
