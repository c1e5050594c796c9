//! The program as a person starts it: with a clean environment and a deadline.

#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod cluster;
pub(crate) mod guard;
pub(crate) mod nodes;
pub(crate) mod proxy;
pub(crate) mod receiver;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nobody listens there. A port that was free a moment ago may be another test's by now.
pub(crate) const NOBODY: &str = "127.0.0.1:1";

/// How a run ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The exit code is this, nothing panicked, and an error ends with a hint.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        if code > 1 {
            let last = self.stderr.trim_end().lines().last().unwrap_or_default();
            assert!(last.starts_with("hint: "), "no hint at the end of:\n{}", self.stderr);
        }
        self
    }

    /// Standard error has all of these.
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in:\n{}", self.stderr);
        }
        self
    }
}

/// The program with these arguments, no RANKGUARD_* variable of whoever runs the tests, and no input.
pub(crate) fn command(args: &[&str]) -> Command {
    command_of(Path::new(env!("CARGO_BIN_EXE_rankguard")), args)
}

/// The same for a program at another place.
fn command_of(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RANKGUARD_") {
            command.env_remove(name);
        }
    }
    guard::guarded(&mut command)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub(crate) fn rankguard(args: &[&str]) -> Ran {
    finish(
        command(args).spawn().expect("the program starts"),
        Duration::from_secs(60),
    )
}

/// Waits for its end; a program that hangs is killed and fails the test.
pub(crate) fn finish(mut child: Child, limit: Duration) -> Ran {
    let started = Instant::now();
    let mut stdout = child.stdout.take().expect("standard output is piped");
    let mut stderr = child.stderr.take().expect("standard error is piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        text
    });
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if started.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it hangs; it said:\n{}", errors.join().unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ran {
        code: status.code(),
        stdout: reader.join().expect("the reader ends"),
        stderr: errors.join().expect("the reader ends"),
    }
}

/// Copies a directory with its regular files; sockets stay behind.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("readable").flatten() {
        let target = to.join(entry.file_name());
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            copy_folder(&entry.path(), &target);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// A process that ends with the test.
pub(crate) struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts it with its words going to a file.
    pub(crate) fn start(args: &[&str], log: &Path) -> Self {
        Self::start_in(Path::new("."), args, log)
    }

    /// Starts it in a working directory.
    pub(crate) fn start_in(dir: &Path, args: &[&str], log: &Path) -> Self {
        let mut command = command(args);
        command.current_dir(dir);
        Self::spawn(command, log)
    }

    /// Starts the program that lies at a path.
    pub(crate) fn start_at(program: &Path, args: &[&str], log: &Path) -> Self {
        Self::spawn(command_of(program, args), log)
    }

    fn spawn(mut command: Command, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a log");
        command.stdout(Stdio::null()).stderr(log);
        Self {
            child: command.spawn().expect("the program starts"),
        }
    }

    /// Asks it to read its catalogue again.
    pub(crate) fn hang_up(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("it runs");
    }

    /// Asks it to end and waits; its exit code.
    pub(crate) fn terminate(&mut self, limit: Duration) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.code();
            }
            assert!(started.elapsed() < limit, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Daemon {
    /// Whether it has a file open whose path is as wanted.
    pub(crate) fn has_open(&self, wanted: impl Fn(&str) -> bool) -> bool {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        let mut paths = files.into_iter().flatten().flatten();
        paths.any(|file| std::fs::read_link(file.path()).is_ok_and(|path| path.to_str().is_some_and(&wanted)))
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, where it still runs.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal);
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the processes of a folder said.
pub(crate) fn logs(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).expect("the folder").flatten();
    let logs = files.filter(|file| file.path().extension().is_some_and(|it| it == "log"));
    logs.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default())
        .collect()
}

/// Looks until there is something.
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The stand-in for the GPU library, compiled into a folder.
pub(crate) fn stand_in(folder: &Path) -> PathBuf {
    let library = folder.join("libstandin.so");
    let built = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--crate-type",
            "cdylib",
            "--edition",
            "2024",
            "--crate-name",
            "stand_in",
            "-o",
        ])
        .arg(&library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fake-nvml/src/lib.rs"))
        .status();
    assert!(built.expect("rustc runs").success(), "the stand-in library compiles");
    library
}
