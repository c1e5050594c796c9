//! Keeper process: holds the arenas' files and reads none of them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::packet::{ArenaLabel, KeeperChannel, KeeperMessage, accept, place};

/// Poll interval for the loss of the socket's name.
const LOOK: Duration = Duration::from_secs(1);

type ArenaFiles = BTreeMap<u64, (ArenaLabel, OwnedFd)>;

/// End of an agent's connection.
#[derive(Debug, PartialEq, Eq)]
enum ConnectionEnd {
    Ended,
    /// Without [`Word::End`].
    Lost,
}

/// Holds the arenas of a directory's agents, one agent after the other, on the socket that is its standard input. Ends
/// when an agent sends [`Word::End`], when no arena is left, when no new agent has connected for `kept`, or when the
/// socket's name is gone or replaced.
pub fn keep_arenas(state_dir: &Path, kept: Duration) -> io::Result<()> {
    // A signal to the agent's session or group must not end this process. The call fails for a group leader, which is
    // separate already.
    let _ = rustix::process::setsid();
    keep(io::stdin().as_fd(), state_dir, kept)
}

fn keep(listener: BorrowedFd<'_>, state_dir: &Path, kept: Duration) -> io::Result<()> {
    let name = place(state_dir);
    let own = fs::metadata(&name)?.ino();
    let is_ours = || fs::metadata(&name).is_ok_and(|found| found.ino() == own);
    let mut held = ArenaFiles::new();
    let mut until = Instant::now() + kept;
    while is_ours() {
        let left = until.saturating_duration_since(Instant::now());
        match accept(listener, left.min(LOOK))? {
            Some(agent) => {
                let gone = serve(&agent, &mut held).unwrap_or(ConnectionEnd::Lost);
                if gone == ConnectionEnd::Ended || held.is_empty() {
                    break;
                }
                until = Instant::now() + kept;
            }
            None if left.is_zero() => break,
            None => {}
        }
    }
    if is_ours() {
        fs::remove_file(&name)?;
    }
    Ok(())
}

/// Sends the arenas that are held, then serves the agent's messages.
fn serve(agent: &KeeperChannel, held: &mut ArenaFiles) -> io::Result<ConnectionEnd> {
    for (label, file) in held.values() {
        agent.send(&KeeperMessage::Arena(label.clone()), Some(file.as_fd()))?;
    }
    agent.send(&KeeperMessage::All, None)?;
    loop {
        match agent.receive(LOOK) {
            Err(problem) if problem.kind() == io::ErrorKind::TimedOut => {}
            Err(problem) => return Err(problem),
            Ok(None) => return Ok(ConnectionEnd::Lost),
            Ok(Some((KeeperMessage::End, _))) => return Ok(ConnectionEnd::Ended),
            Ok(Some((KeeperMessage::LetGo(number), _))) => drop(held.remove(&number)),
            Ok(Some((KeeperMessage::Arena(label), Some(file)))) => drop(held.insert(label.number, (label, file))),
            Ok(Some((KeeperMessage::Arena(_) | KeeperMessage::All, _))) => {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;
    use std::thread;

    use rankguard_model::JobId;

    use super::super::packet::listen_at;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn label(number: u64) -> ArenaLabel {
        ArenaLabel {
            number,
            job: JobId::from("train"),
            local_rank: 3,
            slots: 1,
            image_bytes: 4096,
            meta_bytes: 0,
        }
    }

    fn file(text: &[u8]) -> fs::File {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(text, 0).expect("written");
        file
    }

    /// The arenas that a keeper sends.
    fn handed(channel: &KeeperChannel) -> Vec<(ArenaLabel, OwnedFd)> {
        let mut all = Vec::new();
        loop {
            match channel.receive(LIMIT).expect("heard").expect("it is there") {
                (KeeperMessage::Arena(label), Some(file)) => all.push((label, file)),
                (KeeperMessage::All, None) => return all,
                other => panic!("{other:?}"),
            }
        }
    }

    fn open(dir: &Path) -> KeeperChannel {
        KeeperChannel::open(dir).expect("connected").expect("a keeper is there")
    }

    #[test]
    fn the_next_agent_gets_the_very_files_and_an_end_ends_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = listen_at(dir.path()).expect("a socket");
        let path = dir.path().to_owned();
        let keeper = thread::spawn(move || keep(listener.as_fd(), &path, LIMIT));
        let first = open(dir.path());
        assert!(handed(&first).is_empty());
        for (number, text) in [(1, b"one"), (2, b"two"), (3, b"six")] {
            let said = first.send(&KeeperMessage::Arena(label(number)), Some(file(text).as_fd()));
            said.expect("said");
        }
        first.send(&KeeperMessage::LetGo(2), None).expect("said");
        drop(first);

        let second = open(dir.path());
        let got: Vec<(ArenaLabel, Vec<u8>)> = handed(&second)
            .into_iter()
            .map(|(label, file)| {
                let mut text = vec![0; 3];
                fs::File::from(file).read_exact_at(&mut text, 0).expect("read");
                (label, text)
            })
            .collect();
        assert_eq!(got, [(label(1), b"one".to_vec()), (label(3), b"six".to_vec())]);
        second.send(&KeeperMessage::End, None).expect("said");
        keeper.join().expect("no panic").expect("no error");
        assert!(!place(dir.path()).exists());
        assert!(KeeperChannel::open(dir.path()).expect("asked").is_none());
    }

    #[test]
    fn without_anything_to_keep_or_with_nobody_to_keep_it_for_it_ends() {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = listen_at(dir.path()).expect("a socket");
        keep(listener.as_fd(), dir.path(), Duration::ZERO).expect("nobody came");

        let listener = listen_at(dir.path()).expect("a socket");
        let path = dir.path().to_owned();
        let keeper = thread::spawn(move || keep(listener.as_fd(), &path, LIMIT));
        drop(open(dir.path()));
        keeper.join().expect("no panic").expect("it kept nothing");

        let listener = listen_at(dir.path()).expect("a socket");
        fs::remove_file(place(dir.path())).expect("the name goes");
        assert!(
            keep(listener.as_fd(), dir.path(), LIMIT).is_err(),
            "a socket that nobody can find"
        );
    }

    #[test]
    fn an_agent_that_says_nonsense_loses_nothing_that_is_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = listen_at(dir.path()).expect("a socket");
        let path = dir.path().to_owned();
        let keeper = thread::spawn(move || keep(listener.as_fd(), &path, LIMIT));
        let first = open(dir.path());
        handed(&first);
        first
            .send(&KeeperMessage::Arena(label(1)), Some(file(b"one").as_fd()))
            .expect("said");
        // An arena without its file.
        first.send(&KeeperMessage::Arena(label(2)), None).expect("said");
        let second = open(dir.path());
        assert_eq!(handed(&second).len(), 1);
        second.send(&KeeperMessage::End, None).expect("said");
        keeper.join().expect("no panic").expect("no error");
    }
}
