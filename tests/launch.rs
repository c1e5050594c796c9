//! Starts of jobs with real processes: relative state directories, commands that cannot start, programs that end themselves,
//! launchers, the submitter's search path.

use crate::support;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::{Daemon, command, finish, rankguard, until};

/// Retries of failures that lie in the user's program.
const RETRIES: u32 = 1;

/// The job of this name as `status` shows it.
fn job(cluster: &Cluster, name: &str) -> Value {
    let jobs = cluster.ask(&["status", "jobs", "--format", "json"]);
    let jobs = jobs.as_array().expect("a list");
    let found = jobs.iter().find(|job| job["spec"]["id"] == name);
    found.unwrap_or_else(|| panic!("no job {name} in {jobs:?}")).clone()
}

/// Submits a job with a shell script as its program and follows it to its end.
fn run_script(cluster: &Cluster, name: &str, options: &[&str], script: &str) -> support::Ran {
    let words = [&["run", "--name", name][..], options, &["--", "sh", "-c", script]].concat();
    rankguard(&cluster.args(&words))
}

#[test]
fn relative_state_directories_serve_ranks_with_another_working_directory() {
    let dir = tempfile::tempdir().expect("a folder");
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::write(
        dir.path().join("test.toml"),
        "[controller.policy]\nsettle_ms = 300\ngather_ms = 200\n",
    )
    .expect("written");
    let start = |words: &[&str], log: &str| {
        let words = [&["--config", "test.toml"][..], words].concat();
        Daemon::start_in(dir.path(), &words, &dir.path().join(log))
    };
    let words = [
        "controller",
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        "state/controller",
    ];
    let _controller = start(&words, "controller.log");
    let address = until("the controller to listen", LIMIT, || {
        fs::read_to_string(dir.path().join("state/controller/controller.addr")).ok()
    });
    let fixed = [
        "agent",
        "--node",
        "n1",
        "--slots",
        "1",
        "--kernel-log",
        "off",
        "--state-dir",
        "state/agent",
    ];
    let _agent = start(&[&fixed[..], &["--controller", address.trim()]].concat(), "agent.log");
    // A rank that can reach the agent, and write the dump of its flight recorder, from where it stands.
    let script = r#"
        for path in "$RANKGUARD_SOCKET" "$TORCH_FR_DUMP_TEMP_FILE"; do
            case "$path" in /*) ;; *) echo "$path is relative" >&2; exit 1;; esac
        done
        test -S "$RANKGUARD_SOCKET" || { echo "no socket at $RANKGUARD_SOCKET" >&2; exit 1; }
        : > "${TORCH_FR_DUMP_TEMP_FILE}x" || exit 1
    "#;
    let words = ["run", "--controller", address.trim(), "--name", "away"];
    let words = [
        &words[..],
        &["--workdir", text_of(elsewhere.path()), "--", "sh", "-c", script],
    ]
    .concat();
    rankguard(&words).expect(0);
}

#[test]
fn a_command_that_cannot_start_stops_the_job_at_once() {
    let cluster = Cluster::start(RETRIES, &[]);
    let run = |name: &str, program: &str| {
        let ran = rankguard(&cluster.args(&["run", "--name", name, "--env", "PATH=/usr/bin:/bin", "--", program]));
        let generation = job(&cluster, name)["generation"].clone();
        assert_eq!(generation, 1, "it was tried again:\n{}", ran.stderr);
        ran.expect(3)
    };
    run("absent", "no-such-program").says(&[
        "the command `no-such-program` was not found on node n1 (PATH is /usr/bin:/bin)",
        "it is not tried again",
    ]);
    let plain = cluster.dir.path().join("plain.sh");
    fs::write(&plain, "echo hello\n").expect("written");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).expect("set");
    let ran = run("plain", text_of(&plain)).says(&[
        "cannot execute",
        "plain.sh",
        "Permission denied",
        "it is not tried again",
    ]);
    // A program with a folder is not searched.
    assert!(!ran.stderr.contains("PATH is"), "{}", ran.stderr);
    let broken = cluster.dir.path().join("broken.sh");
    fs::write(&broken, "#!/no/such/interpreter\n").expect("written");
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).expect("set");
    let ran = run("broken", text_of(&broken)).says(&[
        "broken.sh` on node n1: its interpreter /no/such/interpreter does not exist",
        "it is not tried again",
    ]);
    assert!(!ran.stderr.contains("was not found"), "{}", ran.stderr);
    // A program of another system, started by its path as users do.
    fs::write(cluster.dir.path().join("prog"), foreign_program()).expect("written");
    fs::set_permissions(cluster.dir.path().join("prog"), fs::Permissions::from_mode(0o755)).expect("set");
    let mut run = command(&cluster.args(&["run", "--name", "foreign", "--", "./prog"]));
    run.current_dir(cluster.dir.path());
    let ran = finish(run.spawn().expect("the program starts"), LIMIT)
        .expect(3)
        .says(&[
            "cannot execute `./prog` on node n1: the dynamic loader that",
            "prog names does not exist; it was built for another system",
            "it is not tried again",
        ]);
    assert!(!ran.stderr.contains("was not found"), "{}", ran.stderr);
    assert_eq!(job(&cluster, "foreign")["generation"], 1);
}

/// Returns this test program with the name of a dynamic loader that no system has.
fn foreign_program() -> Vec<u8> {
    let mut bytes = fs::read(std::env::current_exe().expect("this program")).expect("it can be read");
    let at = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let headers = usize::try_from(at(&bytes, 0x20)).expect("a file offset");
    let count = usize::from(u16::from_le_bytes([bytes[0x38], bytes[0x39]]));
    const PT_INTERP: u32 = 3;
    const HEADER_BYTES: usize = 56;
    let mut programs = (0..count).map(|nth| headers + nth * HEADER_BYTES);
    let kind = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let interpreter = programs
        .find(|at| kind(*at) == PT_INTERP)
        .expect("it is linked dynamically");
    let name = usize::try_from(at(&bytes, interpreter + 8)).expect("a file offset");
    bytes[name..name + 4].copy_from_slice(b"/no/");
    bytes
}

#[test]
fn the_words_of_a_program_that_ended_itself_are_in_case_and_output() {
    let cluster = Cluster::start(RETRIES, &[]);
    let script = "echo loading; echo 'config wrong: lr=-1' >&2; exit 1";
    let ran = run_script(&cluster, "wrong", &["--max-restarts", "3"], script);
    ran.expect(3).says(&[
        "> config wrong: lr=-1",
        "verdict: uncaught-exception",
        "the same failure came back after 1 retry",
        "hint: Read the message with which the program ended itself",
    ]);
    assert_eq!(job(&cluster, "wrong")["generation"], 2);
    let cases = cluster.ask(&["cases", "--format", "json"]);
    let last = cases.as_array().and_then(|cases| cases.last()).expect("a case");
    assert_eq!(last["findings"][0]["text"], "config wrong: lr=-1", "{last:#}");
}

/// The rank ends with the process of the agent above it.
#[test]
fn a_rank_that_ended_with_its_supervisor_is_described_so() {
    let cluster = Cluster::start(0, &[]);
    let parent = cluster.dir.path().join("parent");
    let script = format!("echo $PPID > {0}.new; mv {0}.new {0}; exec sleep 600", text_of(&parent));
    let words = ["run", "--name", "sup", "--max-restarts", "0", "--", "sh", "-c", &script];
    let run = command(&cluster.args(&words)).spawn().expect("the program starts");
    let supervisor = until("the rank to run", LIMIT, || fs::read_to_string(&parent).ok());
    let supervisor = supervisor.trim();
    let killed = std::process::Command::new("kill").args(["-9", supervisor]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    finish(run, LIMIT).expect(3);
    let shown = rankguard(&["cases", "show", "1", "--controller", &cluster.address])
        .expect(0)
        .stdout;
    let wanted = format!("Its supervisor, process {supervisor} of the agent, was ended by SIGKILL");
    let text = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&wanted), "{shown}");
}

#[test]
fn a_launcher_is_refused_with_the_right_command() {
    let cluster = Cluster::start(RETRIES, &[]);
    let program = cluster.dir.path().join("torchrun");
    fs::write(&program, "#!/bin/sh\nexit 0\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    let run = |options: &[&str]| {
        let launched = ["--", text_of(&program), "--nproc-per-node=2", "x.py", "--lr", "1"];
        rankguard(&cluster.args(&[&["run"][..], options, &launched].concat()))
    };
    run(&[]).expect(64).says(&[
        "cannot run the launcher",
        "`rankguard run --ranks-per-node 2 -- python x.py --lr 1`",
        "--allow-launcher",
    ]);
    run(&["--allow-launcher", "--ranks-per-node", "2"]).expect(64);
    run(&["--allow-launcher"]).expect(0);
}

/// Makes a program that only one search path has.
fn program_in(folder: &Path, name: &str) {
    fs::create_dir_all(folder).expect("made");
    let program = folder.join(name);
    fs::write(&program, "#!/bin/sh\ntest \"$VIRTUAL_ENV\" = /some/venv\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
}

#[test]
fn ranks_find_programs_where_their_submitter_does() {
    let cluster = Cluster::start(RETRIES, &[]);
    let folder = cluster.dir.path().join("venv/bin");
    program_in(&folder, "only-in-venv");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let run = |options: &[&str]| {
        let words = [&["run"][..], options, &["--", "only-in-venv"]].concat();
        let mut run = command(&cluster.args(&words));
        run.env("PATH", &path).env("VIRTUAL_ENV", "/some/venv");
        finish(run.spawn().expect("the program starts"), LIMIT)
    };
    run(&[]).expect(0);
    run(&["--env", "PATH=/usr/bin:/bin"])
        .expect(3)
        .says(&["`only-in-venv` was not found on node n1 (PATH is /usr/bin:/bin)"]);
}

#[test]
fn a_missing_module_names_the_interpreter() {
    let cluster = Cluster::start(RETRIES, &[]);
    let folder = cluster.dir.path().join("venv/bin");
    fs::create_dir_all(&folder).expect("made");
    let python = folder.join("python-of-test");
    let text = "#!/bin/sh\nprintf 'Traceback (most recent call last):\\n  File \"x.py\", line 1, in <module>\\n    import torch\\n\
                ModuleNotFoundError: No module named %s\\n' \"'torch'\" >&2\nexit 1\n";
    fs::write(&python, text).expect("written");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("set");
    let path = format!("PATH={}:/usr/bin:/bin", folder.display());
    let ran = rankguard(&cluster.args(&["run", "--env", &path, "--", "python-of-test", "x.py"]));
    let interpreter = format!("The ranks ran `python-of-test`, here {}", python.display());
    ran.expect(3).says(&["No module named 'torch'", &interpreter]);
}

#[test]
fn the_variable_of_the_controller_is_suggested() {
    let mut status = command(&["status"]);
    status.env("RANKGUARD_CLIENT_CONTROLLER", "127.0.0.1:1");
    let ran = finish(status.spawn().expect("the program starts"), LIMIT);
    ran.expect(64).says(&["did you mean RANKGUARD_CONTROLLER?"]);
}
