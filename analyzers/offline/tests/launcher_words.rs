//! Ends of processes in the words of launchers: which rank ended, and how.

use rankguard_model::Rank;

use crate::folders::diagnose;

/// llm-foundry#1501, llm-foundry#258, mosaicml/examples#292: `composer/cli/launcher.py`.
#[test]
fn a_stated_end_of_a_rank_is_a_failure_of_that_rank() {
    for (line, class, rank) in [
        (
            "ERROR:composer.cli.launcher:Rank 1 crashed with exit code 1.",
            "launcher-child-failed",
            1,
        ),
        (
            "ERROR:composer.cli.launcher:Global rank 3 (PID 208865) exited with code 1",
            "launcher-child-failed",
            3,
        ),
        (
            "ERROR:composer.cli.launcher:Global rank 0 (PID 208865) exited with code -11",
            "segfault",
            0,
        ),
        (
            "ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.",
            "segfault",
            2,
        ),
        (
            "ERROR:composer.cli.launcher:Global rank 5 (PID 7) exited with code -9",
            "killed-by-signal",
            5,
        ),
        ("process of rank 4 was killed by signal 6", "launcher-child-failed", 4),
    ] {
        let cases = diagnose(&[("run.log", &format!("Building trainer...\n{line}\n"))]);
        assert_eq!(cases.len(), 1, "{line}: {cases:?}");
        assert_eq!(
            (cases[0].class.as_str(), cases[0].root_rank),
            (class, Some(Rank(rank))),
            "{line}: {cases:?}"
        );
    }
    for line in [
        "Rank 1 exited with code 0",
        "When rank 1 exited with code 1 in the last release, nothing was printed",
        "Rank 1 finished epoch 3 with status ok",
    ] {
        let cases = diagnose(&[("run.log", &format!("Building trainer...\n{line}\n"))]);
        assert!(cases.is_empty(), "{line}: {cases:?}");
    }
}

#[test]
fn a_stated_end_of_a_process_that_no_rule_knows_is_a_case() {
    for line in [
        "Worker 3 exited with code 1",
        "worker-3 terminated with exit code 1",
        "worker 2 (pid 4711) died with status 1",
        "gpu worker 4 has exited with return code 1",
        "subprocess 4711 exited with return code 1",
        "node gpu-3 exited with code 1",
        "[launcher] pid 4711 was killed by signal 6",
        "Process exited with signal 6",
        "lightning_launcher: process 2 exited with code 1",
        "mpirun: process rank 3 exited with nonzero status 5",
        "Rank 3 died",
        "worker 3 failed to fetch its shard and exited with code 1",
        "Exited with exit code 1.",
    ] {
        let cases = diagnose(&[("run.log", &format!("Building trainer...\n{line}\n"))]);
        assert_eq!(cases.len(), 1, "{line}: {cases:?}");
    }
    for lines in [
        "Worker 3 exited with code 0",
        "Worker 3 finished",
        "if a worker exited with code 1, the trainer starts it again",
        "no worker exited with code 1",
        "Worker 3 exited with code 1, restarting it",
        "Worker 3 exited with code 1\nBooting worker with pid: 78",
        "Worker 3 exited with code 1\nstep 41 loss 2.0",
        "Worker 3 exited with code 1\nTraining completed successfully",
        "cleanup hook exited with code 1",
    ] {
        let cases = diagnose(&[("run.log", &format!("Building trainer...\n{lines}\n"))]);
        assert!(cases.is_empty(), "{lines}: {cases:?}");
    }
    // A restart that is refused is none.
    let refused = "Worker 3 exited with code 1\nNot restarting: max restarts exceeded\n";
    assert_eq!(diagnose(&[("run.log", refused)]).len(), 1);
}

/// tdrussell/diffusion-pipe#243: DeepSpeed's `launch.py` and `torch.distributed.launch` print the command that they started
/// last, not that of the process which failed.
#[test]
fn a_launcher_that_quotes_a_command_does_not_name_a_rank() {
    for line in [
        "[2025-05-04 22:44:31,215] [ERROR] [launch.py:325:sigkill_handler] ['python', '-u', 'train.py', '--local_rank=1', \
         '--deepspeed'] exits with return code = 1",
        "subprocess.CalledProcessError: Command '['python', '-u', 'train.py', '--local_rank=3']' returned non-zero exit \
         status 1.",
        "subprocess.CalledProcessError: Command '['python', '-u', 'train.py', '--local_rank=7']' died with <Signals.SIGSEGV: \
         11>.",
    ] {
        let cases = diagnose(&[("run.log", &format!("{line}\n"))]);
        assert_eq!((cases.len(), cases[0].root_rank), (1, None), "{line}: {cases:?}");
        let stated = cases[0].reasoning.join(" ");
        assert!(!stated.contains("ocal rank"), "{line}: {stated}");
    }
    // The node of a launcher that labels its lines is that of the process.
    let labelled = "k7: [2026-05-02 08:00:04,100] [ERROR] [launch.py:325:sigkill_handler] ['python', '-u', 'fit.py', \
                    '--local_rank=6'] exits with return code = -6\n";
    let cases = diagnose(&[("ds.log", labelled)]);
    assert_eq!(cases[0].root_node.as_ref().map(|node| node.as_str()), Some("k7"));
}
