//! Process that calls the library: it answers one poll at a time on the socket that is its standard input.
//!
//! One thread makes the calls; the other checks their duration and writes the answers. The process ends when the agent
//! closes the socket, when the library is gone, or when a call is stuck; a process that is stuck inside the kernel ends
//! when it can.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rustix::process::Signal;

use super::current::CurrentCall;
use super::library::{self, GpuLibrary, LOAD};
use super::protocol::{LOOK, LibraryAnswer};
use crate::memory;

/// Deadline of the first call, as a multiple of that of other calls.
const LOAD_FACTOR: u32 = 2;

/// Serves polls of the parent agent until it closes the socket. `library` is the path of the GPU management library,
/// the system's own if absent; a call that takes longer than `deadline` is reported and ends the service.
pub fn serve_gpu_calls(library: Option<&Path>, deadline: Duration) -> io::Result<()> {
    // The parent process is the only reader.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (requests, looks) = sync_channel(1);
    let (answer, answers) = sync_channel(1);
    let current = CurrentCall::default();
    let path = library.map(PathBuf::from);
    let calls = current.clone();
    // Not joined: a thread inside a wedged driver cannot be ended.
    std::thread::Builder::new()
        .name("gpu-calls".to_owned())
        .spawn(move || work(path.as_deref(), &looks, &answer, &calls))?;
    let mut lines = BufReader::new(socket.try_clone()?);
    let mut line = Vec::new();
    // Loading the library uses most of the memory of this process.
    let mut settled = false;
    loop {
        line.clear();
        lines.read_until(b'\n', &mut line)?;
        if line != LOOK || requests.send(()).is_err() {
            return Ok(());
        }
        let answer = wait(&answers, &current, deadline);
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        (&socket).write_all(&text)?;
        if !std::mem::replace(&mut settled, true) {
            memory::give_back();
        }
        if !matches!(answer, LibraryAnswer::Seen { .. }) {
            return Ok(());
        }
    }
}

/// Returns the answer to one poll, or the call that exceeds its deadline.
fn wait(answers: &Receiver<LibraryAnswer>, current: &CurrentCall, deadline: Duration) -> LibraryAnswer {
    let step = (deadline / 10).clamp(Duration::from_millis(1), Duration::from_millis(250));
    loop {
        match answers.recv_timeout(step) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => {
                return LibraryAnswer::Absent("a call into the management library ended its thread".to_owned());
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(call) = current.now() {
                    let factor = if call.what == LOAD { LOAD_FACTOR } else { 1 };
                    if call.since.elapsed() >= deadline * factor {
                        return LibraryAnswer::Stuck(call.to_string());
                    }
                }
            }
        }
    }
}

fn work(path: Option<&Path>, looks: &Receiver<()>, answer: &SyncSender<LibraryAnswer>, current: &CurrentCall) {
    let nvml = match library::load(path, current) {
        Ok(nvml) => nvml,
        Err(problem) => {
            if looks.recv().is_ok() {
                let _ = answer.send(LibraryAnswer::Absent(problem));
            }
            return;
        }
    };
    let mut library = GpuLibrary::new(&nvml, current.clone());
    while looks.recv().is_ok() {
        if answer.send(library.look()).is_err() {
            return;
        }
    }
}
