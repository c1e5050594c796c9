//! Calls of a program that hangs, fails, or shows what it was given.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_slurm::{NodeAvailability, Scontrol, ScontrolError};
use tokio::sync::Mutex;

/// Longest wait for a program that answers.
const LIMIT: Duration = Duration::from_secs(60);

/// Held by each test: a process that starts while a program is written inherits the open file, which then cannot be run.
static TURN: Mutex<()> = Mutex::const_new(());

/// Program in a folder of its own, which is its working file, too.
struct Program {
    dir: tempfile::TempDir,
}

impl Program {
    fn new(script: &str) -> Self {
        let program = Self {
            dir: tempfile::tempdir().expect("a temporary folder"),
        };
        let text = format!("#!/bin/sh\nhere={}\n{script}\n", program.dir.path().display());
        fs::write(program.path("scontrol"), text).expect("written");
        fs::set_permissions(program.path("scontrol"), fs::Permissions::from_mode(0o755)).expect("changed");
        program
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn scontrol(&self, limit: Duration) -> Scontrol {
        Scontrol::new(self.path("scontrol"), limit)
    }
}

#[tokio::test]
async fn a_program_that_hangs_is_ended() {
    let _turn = TURN.lock().await;
    let program = Program::new("echo $$ > $here/pid\nexec sleep 600");
    // Long enough for the program to write its number.
    let mut limit = Duration::from_millis(250);
    let pid = loop {
        let ended = program.scontrol(limit).nodes().await;
        assert!(matches!(ended, Err(ScontrolError::Silent { .. })), "{ended:?}");
        match fs::read_to_string(program.path("pid")) {
            Ok(pid) if pid.ends_with('\n') => break pid,
            _ => limit *= 2,
        }
    };
    let process = PathBuf::from("/proc").join(pid.trim()).join("cmdline");
    let has_ended = || fs::read(&process).map_or(true, |words| words.is_empty());
    while !has_ended() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_failure_has_the_words_of_the_program_on_one_line() {
    let _turn = TURN.lock().await;
    let program = Program::new("echo 'slurm_update error: Invalid node' >&2; echo 'name specified' >&2; exit 1");
    let failed = program.scontrol(LIMIT).drain("n1", "fan").await.expect_err("it failed");
    assert_eq!(
        failed.to_string(),
        "scontrol failed: slurm_update error: Invalid node name specified"
    );
    let missing = Scontrol::new(program.path("no-such-program"), LIMIT).nodes().await;
    assert!(matches!(missing, Err(ScontrolError::Start { .. })), "{missing:?}");
}

#[tokio::test]
async fn words_reach_the_program_as_they_are_and_name_one_node() {
    let _turn = TURN.lock().await;
    let program = Program::new("printf '%s\\n' \"$@\" >> $here/words");
    let scontrol = program.scontrol(LIMIT);
    let reason = "$(reboot) `id` ; && ' > x";
    scontrol.drain("gpu-07.example", reason).await.expect("it ends well");
    scontrol.undrain("n1").await.expect("it ends well");
    let words = fs::read_to_string(program.path("words")).expect("words");
    let wanted =
        format!("update\nnodename=gpu-07.example\nstate=drain\nreason={reason}\nupdate\nnodename=n1\nstate=undrain\n");
    assert_eq!(words, wanted);
    for several in ["ALL", "all", "n[1-9]", "n1,n2", "", "n1 state=down", "--help"] {
        let refused = [scontrol.drain(several, "x").await, scontrol.undrain(several).await];
        let is_name = |refused: &Result<(), ScontrolError>| matches!(refused, Err(ScontrolError::Name { .. }));
        assert!(refused.iter().all(is_name), "{several:?}: {refused:?}");
    }
}

#[tokio::test]
async fn the_node_that_was_asked_for_is_read() {
    let _turn = TURN.lock().await;
    let line = "NodeName=n2 State=IDLE ThreadsPerCore=1\nNodeName=n1 State=IDLE ThreadsPerCore=1";
    let program = Program::new(&format!("printf '{line}\\n'"));
    let scontrol = program.scontrol(LIMIT);
    assert_eq!(
        scontrol.availability("n1").await.expect("listed"),
        NodeAvailability::Open
    );
    let unknown = scontrol.availability("n3").await.expect_err("not listed");
    assert_eq!(unknown.to_string(), "Slurm does not list node n3");
}
