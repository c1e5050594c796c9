//! Stack of a process: its Python functions, and its wait in the kernel.
//!
//! Processes are not stopped, attached to or changed. The py-spy library reads Python stacks from the process's memory,
//! in a separate process with a deadline and a memory limit (`rankguard stack-calls`), so that invalid foreign memory
//! ends only that process. Absent: stacks of a rank's child processes, and native frames: the library reads those only
//! of a process that it stops (and with libunwind), and a rank must not be stopped for diagnosis (RG-12).

mod children;
mod kernel;
mod python;
mod task;

use std::ffi::OsString;
use std::path::Path;

pub(crate) use children::{ChildProcess, ChildProcesses};
pub(crate) use kernel::{KernelState, file_waited_for};
pub use python::serve_stack_calls;
use python::{PythonThread, ask};

/// Frames of the main thread that are retained, the innermost ones.
const FRAMES: usize = 96;
/// Most other threads that are listed.
const OTHERS: usize = 32;

/// Prefix of a line that is not a frame of the main thread.
const ASIDE: &str = "-- ";

/// Stack of a process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProcessStack {
    /// Frames of its main thread, outermost first, the last one in the kernel; then further lines, each beginning with
    /// `-- `.
    pub(crate) lines: Vec<String>,
    /// Innermost frame of the main thread.
    pub(crate) place: String,
    /// State of the process in the kernel.
    pub(crate) standing: KernelState,
}

/// Reads the stack of a process; none if the process is gone. `words` is the command that reads Python stacks; none are
/// read if it is empty.
pub(crate) fn look(proc_root: &Path, pid: u32, words: &[OsString]) -> Option<ProcessStack> {
    let standing = KernelState::of(proc_root, pid)?;
    let told = if words.is_empty() {
        Err("no program reads them".to_owned())
    } else {
        ask(words, pid)
    };
    let mut dead = ChildProcesses::new(proc_root).of(pid);
    dead.retain(|child| child.state == 'Z');
    Some(join(pid, standing, &dead, told))
}

fn join(
    pid: u32,
    standing: KernelState,
    dead: &[ChildProcess],
    told: Result<Vec<PythonThread>, String>,
) -> ProcessStack {
    let mut lines = Vec::new();
    let mut aside = Vec::new();
    let mut place = None;
    match told {
        Err(why) => aside.push(format!("{ASIDE}no Python stacks: {why}")),
        Ok(threads) => {
            let main = threads.iter().position(|thread| thread.is_main(pid)).unwrap_or(0);
            for (index, thread) in threads.iter().enumerate() {
                if index == main {
                    place = thread.frames.last().cloned();
                    let skip = thread.frames.len().saturating_sub(FRAMES);
                    lines.extend(thread.frames.iter().skip(skip).cloned());
                } else if aside.len() < OTHERS {
                    let way: Vec<&str> = thread.frames.iter().rev().take(4).map(String::as_str).collect();
                    aside.push(format!("{ASIDE}thread {} in {}", thread.name, way.join(" < ")));
                }
            }
        }
    }
    let kernel = standing.to_string();
    let place = place.unwrap_or_else(|| kernel.clone());
    lines.push(kernel);
    lines.extend(aside);
    for blocked in &standing.blocked {
        lines.push(format!("{ASIDE}blocked in the kernel: {blocked}"));
    }
    for child in dead.iter().take(OTHERS) {
        lines.push(format!("{ASIDE}has ended and nobody waits for it: {child}"));
    }
    ProcessStack { lines, place, standing }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: u32, name: &str, frames: &[&str]) -> PythonThread {
        PythonThread {
            id: Some(id),
            name: name.to_owned(),
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        }
    }

    #[test]
    fn the_main_thread_comes_first_and_the_others_are_told_aside() {
        let standing = KernelState {
            state: 'S',
            syscall: Some("futex".to_owned()),
            ..KernelState::default()
        };
        let threads = vec![
            thread(8, "pin_memory", &["run (threading.py:9)", "get (queue.py:7)"]),
            thread(7, "MainThread", &["main (train.py:1)", "all_reduce (dist.py:5)"]),
        ];
        let dead = ChildProcess {
            pid: 9,
            name: "pt_data_worker".to_owned(),
            parent: 7,
            state: 'Z',
            ended: Some(rankguard_model::ProcessExit::Signal(9)),
        };
        let stack = join(7, standing, &[dead], Ok(threads));
        assert_eq!(stack.place, "all_reduce (dist.py:5)");
        let wanted = [
            "main (train.py:1)",
            "all_reduce (dist.py:5)",
            "sleeping in futex",
            "-- thread pin_memory in get (queue.py:7) < run (threading.py:9)",
            "-- has ended and nobody waits for it: process 9 (pt_data_worker), signal 9 (exit code 137)",
        ];
        assert_eq!(stack.lines, wanted);
    }

    #[test]
    fn without_python_the_kernel_tells_and_why_is_told() {
        let standing = KernelState {
            state: 'T',
            ..KernelState::default()
        };
        let stack = join(7, standing, &[], Err("it is no Python".to_owned()));
        assert_eq!(stack.place, "stopped");
        assert_eq!(stack.lines, ["stopped", "-- no Python stacks: it is no Python"]);
    }

    #[test]
    fn stacks_without_end_are_cut_at_their_outer_side() {
        let frames: Vec<String> = (0..10_000).map(|depth| format!("f{depth}")).collect();
        let deep = PythonThread {
            id: Some(7),
            name: "MainThread".to_owned(),
            frames,
        };
        let many = (0..5_000).map(|id| thread(id + 100, "t", &["x"]));
        let stack = join(
            7,
            KernelState::default(),
            &[],
            Ok(std::iter::once(deep).chain(many).collect()),
        );
        assert_eq!(stack.lines[0], "f9904");
        assert_eq!(stack.lines.len(), FRAMES + 1 + OTHERS);
    }
}
