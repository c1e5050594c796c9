//! Messages that state what a class in general does not: evictions, expired credentials, held devices, processes that outlive
//! SIGKILL.

use rankguard_offline::OfflineCase;

use crate::folders::diagnose;

fn only(files: &[(&str, &str)]) -> OfflineCase {
    let cases = diagnose(files);
    assert_eq!(cases.len(), 1, "{files:?}: {cases:?}");
    cases.into_iter().next().unwrap()
}

/// ceph/ceph#65325: `man mount.ceph`, recover_session.
#[test]
fn an_evicted_client_has_lost_what_it_had_not_written() {
    let log = "Jul 20 08:14:38 t1 kernel: [3677601.123718] ceph: mds0 closed our session\n\
               Jul 20 08:14:39 t1 kernel: [3677602.093378] ceph: mds0 reconnect denied\n\
               Jul 20 08:14:39 t1 kernel: [3677602.098525] ceph:  dropping dirty+flushing Fw state for ffff8802dc150518 10999\n\
               Jul 20 08:14:39 t1 kernel: [3677602.196747] libceph: mds0 172.21.5.114:6812 socket closed (con state OPEN)\n";
    let case = only(&[("kern.log", log)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("storage-io-error", "node t1")
    );
    assert!(
        case.advice.contains("is lost") && case.action == "replace-node",
        "{case:?}"
    );
    // A server that is slow to answer has thrown nothing away.
    let slow = "Jul 20 08:14:38 t1 kernel: [3677601.123718] ceph: mds0 hung\n";
    let case = only(&[("kern.log", slow)]);
    assert_eq!(
        (case.class.as_str(), case.action.as_str()),
        ("filesystem-hang", "wait-for-dependency")
    );
}

/// ai4d-iasc/trixie#58.
#[test]
fn an_expired_credential_of_a_launch_proves_no_clock_wrong() {
    let log = "srun: error: Task launch for 36.0 failed on node cn131: Job credential expired\n\
               srun: error: Application launch failed: Job credential expired\n\
               srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n\
               srun: error: Timed out waiting for job step to complete\n";
    let case = only(&[("slurm-36.out", log)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("slurm-node-fail", "node cn131")
    );
    assert!(case.advice.contains("Compare the clock"), "{}", case.advice);
    // Munge compares clocks.
    let munge = "[2026-05-02T10:00:00.000] error: Munge decode failed: Expired credential\n";
    assert_eq!(only(&[("slurmctld.log", munge)]).class, "clock-skew");
}

/// ArjunaUsers#21.
#[test]
fn a_script_that_the_daemon_lost_is_no_path_of_the_user() {
    let lost = "slurmstepd: error: execve(): /tmp/slurmd/job2997814/slurm_script: No such file or directory\n";
    let case = only(&[("error.err", lost)]);
    assert_eq!(
        (case.class.as_str(), case.action.as_str()),
        ("slurm-node-fail", "contact-platform")
    );
    let own = "slurmstepd: error: execve(): train.sh: No such file or directory\n";
    assert_ne!(only(&[("error.err", own)]).class, "slurm-node-fail");
}

/// ai4d-iasc/trixie#45.
#[test]
fn a_step_that_outlives_its_kill_leaves_a_node_to_look_at() {
    let cancelled =
        "[2020-12-14T09:43:55.500] [63532.0] error: *** STEP 63532.0 ON cn106 CANCELLED AT 2020-12-14T09:43:55 ***\n";
    let alive = "[2020-12-14T09:44:56.002] [63532.0] error: *** STEP 63532.0 STEPD TERMINATED ON cn106 AT 2020-12-14T09:44:56 DUE \
                 TO JOB NOT ENDING WITH SIGNALS ***\n";
    let case = only(&[("slurmd.log", &format!("{cancelled}{alive}"))]);
    assert_eq!((case.class.as_str(), case.blamed.as_str()), ("hung-task", "node cn106"));
    assert!(
        case.action == "replace-node" && case.advice.contains("Keep jobs off"),
        "{case:?}"
    );
    let case = only(&[("slurmd.log", cancelled)]);
    assert_eq!((case.class.as_str(), case.action.as_str()), ("job-cancelled", "none"));
}

/// huggingface/tgi-gaudi#93, HabanaAI/vllm-fork#484.
#[test]
fn a_device_of_another_process_is_no_failed_launch() {
    let raised = |message: &str| {
        format!(
            "Traceback (most recent call last):\n  File \"train.py\", line 31, in <module>\n    model.to(\"hpu\")\n{message}\n"
        )
    };
    let taken = raised("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.");
    let case = only(&[("run.log", &taken)]);
    assert_eq!(case.class, "resource-contention");
    assert!(case.advice.contains("hl-smi"), "{}", case.advice);
    let graph = raised("RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].");
    let case = only(&[("run.log", &graph)]);
    assert!(case.advice.contains("graph compiler"), "{}", case.advice);
    assert!(
        !case
            .reasoning
            .iter()
            .any(|reason| reason.contains("names its cause itself")),
        "{:?}",
        case.reasoning
    );
}

/// kubernetes#32542 and mosaicml/llm-foundry#1501.
#[test]
fn an_image_without_room_is_a_full_disk_and_a_warning_about_memory_is_no_failure() {
    let pull = "Failed to pull image \"gcr.io/hive/train:v9\": ErrImagePull: failed to register layer: Untar re-exec error: \
                exit status 1: output: write /usr/lib/libtorch.so: no space left on device\n";
    assert_eq!(only(&[("events.log", pull)]).class, "disk-full");
    let tag = "Failed to pull image \"gcr.io/hive/train:v9\": ErrImagePull: manifest unknown\n";
    assert_eq!(only(&[("events.log", tag)]).class, "k8s-image-pull");
    let warning = "composer/trainer/trainer.py:256: UserWarning: `device_train_microbatch_size='auto'` may potentially fail with \
                   unexpected CUDA errors. Auto microbatching attempts to catch CUDA Out of Memory errors and adjust the \
                   batch size\n";
    let runs = "2024-08-30 11:06:12,920: rank0[208865][MainThread]: INFO: llmfoundry.command_utils.train: Starting training...\n";
    let cases = diagnose(&[("rank-0.err", &format!("{warning}{runs}"))]);
    assert!(cases.is_empty(), "{cases:?}");
    let failed = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    assert_eq!(only(&[("rank-0.err", &format!("{warning}{failed}"))]).class, "cuda-oom");
}

/// What this agent answers a rank that it cannot serve for a reason of its own.
#[test]
fn a_restore_that_the_agent_could_not_serve_is_no_damaged_checkpoint() {
    for reason in [
        "make the arena: slot 0 is restored where empty is needed",
        "hand the restored tensors to the rank: Broken pipe (os error 32)",
        "a later generation of the job acts by now",
    ] {
        let log = format!("RuntimeError: this agent cannot restore step 50: {reason}\n");
        assert_ne!(only(&[("rank-0.err", &log)]).class, "checkpoint-corrupt", "{reason}");
    }
    let log = "RuntimeError: the checkpoint of step 50 cannot be loaded: restore: chunk 3 of rank 0 is damaged\n";
    assert_eq!(only(&[("rank-0.err", log)]).class, "checkpoint-corrupt");
}
