//! States of machines that logs of jobs report, and which machine a report is about.

use std::fmt::Write as _;

use rankguard_model::NodeId;
use rankguard_offline::OfflineCase;

use crate::folders::diagnose;

fn only(files: &[(&str, &str)]) -> OfflineCase {
    let cases = diagnose(files);
    assert_eq!(cases.len(), 1, "{files:?}: {cases:?}");
    cases.into_iter().next().unwrap()
}

fn check(line: &str, class: &str, blamed: &str) {
    let case = only(&[("run.log", &format!("{line}\n"))]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        (class, blamed),
        "{line}: {case:?}"
    );
    let conclusion = case.reasoning.iter().find(|reason| reason.contains("with confidence"));
    assert!(
        conclusion.is_some_and(|reason| reason.contains(blamed)),
        "{:?}",
        case.reasoning
    );
}

/// NVIDIA/k8s-device-plugin#1431, kubeplus#1382, cactus-snakemake#11, helixer-docker#5, pyxis#4, runs-on#277, cBio-cluster#188.
#[test]
fn a_state_of_a_machine_blames_a_machine() {
    let unnamed = "a machine that the log does not name";
    for (line, class) in [
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
            "driver-version-mismatch",
        ),
        (
            "Message:      The node was low on resource: ephemeral-storage. Threshold quantity: 2146223340",
            "disk-full",
        ),
        (
            "FATAL:   container creation failed: mount /askapbuffer->/askapbuffer error: while mounting /askapbuffer: mount \
             source /askapbuffer doesn't exist",
            "filesystem-mount-failure",
        ),
        (
            "FATAL:   container creation failed: exec: \"/usr/bin/nvidia-container-cli\": stat /usr/bin/nvidia-container-cli: no \
             such file or directory",
            "container-runtime-error",
        ),
        (
            "slurmstepd: error: pyxis: couldn't mkdir /run/pyxis/100005: No such file or directory",
            "container-runtime-error",
        ),
        (
            "slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied",
            "permission-denied",
        ),
        ("job preempted (node failure)", "slurm-node-fail"),
    ] {
        check(line, class, unnamed);
    }
    check(
        "18:32:36.273 [i-01f7ddd103dc478c0/cloud-init-output] Instance: Spot interruption payload received: {\"action\":\"terminate\"}",
        "preempted",
        "node i-01f7ddd103dc478c0",
    );
}

/// NVIDIA/pyxis#12: `srun` names the node of the task that ended.
#[test]
fn a_node_that_the_launcher_names_is_the_machine() {
    let denied = "slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied\n";
    let ended = |node: &str| format!("srun: error: {node}: task 0: Exited with exit code 1\n");
    let case = only(&[("run.log", &format!("{denied}{}", ended("vm-7")))]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("permission-denied", "node vm-7"),
        "{case:?}"
    );
    // Of two nodes it may be either.
    let two = ended("vm-8").replace("task 0", "task 1");
    let case = only(&[("run.log", &format!("{denied}{}{two}", ended("vm-7")))]);
    assert_eq!(case.blamed, "a machine that the logs do not show", "{case:?}");
}

#[test]
fn a_state_that_is_not_of_a_machine_blames_the_job() {
    for (line, class) in [
        ("OSError: [Errno 28] No space left on device", "disk-full"),
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-01T10:00:00 DUE TO PREEMPTION ***",
            "preempted",
        ),
        (
            "FATAL:   container creation failed: mount /var/apptainer/mnt/session/storage->/storage error: while mounting \
             /var/apptainer/mnt/session/storage: destination /storage doesn't exist in container",
            "container-runtime-error",
        ),
        (
            "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
            "library-incompatible",
        ),
    ] {
        let case = only(&[("run.log", &format!("{line}\n"))]);
        assert_eq!(case.class, class, "{line}");
        assert!(!case.blamed.contains("machine"), "{line}: {}", case.blamed);
    }
}

/// apptainer#1895.
#[test]
fn a_mount_point_that_the_image_lacks_fails_on_every_node() {
    let lacks = "FATAL:   container creation failed: mount hook function failure: mount \
                 /var/apptainer/mnt/session/storage->/storage error: while mounting /var/apptainer/mnt/session/storage: \
                 destination /storage doesn't exist in container\n";
    let case = only(&[("run.log", lacks)]);
    assert_eq!(case.action, "fix-user-config");
    assert!(
        case.advice.contains("Another node starts the same image"),
        "{}",
        case.advice
    );
}

/// aws-ofi-nccl#1020: `man fi_getinfo`, FI_ENODATA.
#[test]
fn a_library_that_finds_no_adapter_tried_no_link() {
    let none = "[2025-10-16 22:16:08] ip-172-31-3-90:1929:1937 [0] nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() \
                call failed: No data available\n";
    let case = only(&[("run.log", none)]);
    assert_eq!(
        (case.class.as_str(), case.layer.as_str()),
        ("nccl-net-plugin-error", "platform")
    );
    assert!(case.advice.contains("/dev/infiniband"), "{}", case.advice);
    // Another error of the same call is one of the adapter.
    let other = "ip-172-31-3-90:1929:1937 [0] init:78 NCCL WARN NET/OFI fi_getinfo() call failed: Input/output error\n";
    assert_eq!(only(&[("run.log", other)]).class, "ib-rdma-error");
}

/// HabanaAI/hccl_demo#44: `synapse_common_types.h`, synDeviceAlreadyAcquired.
#[test]
fn a_status_by_its_number_is_the_status_by_its_name() {
    let number = "HCCL demo error: In function initDevice(): synDeviceAcquire(&resources.deviceHandle, nullptr) failed with synapse \
                  error: 20\n";
    assert_eq!(only(&[("run.log", number)]).class, "resource-contention");
    let other = number.replace(": 20", ": 26");
    assert_eq!(only(&[("run.log", &other)]).class, "cuda-launch-failure");
}

/// ray-project/ray#22349, and the forms of other systems.
#[test]
fn a_node_that_a_line_states_as_lost_is_blamed_and_not_its_writer() {
    let ray = "2022-02-15 16:53:52,096 WARNING worker.py:1462 -- The node with node id: 8f205b12 and ip: 10.128.0.103 has been marked \
               dead because the detector has missed too many heartbeats from it.\n(BackendExecutor pid=5126, ip=10.128.0.32) 2022-02-15 \
               16:53:52,097 ERROR utils.py:42 -- The actor died unexpectedly before finishing this task.\n";
    let case = only(&[("run.log", ray)]);
    assert_eq!(
        (case.blamed.as_str(), case.root_node.clone()),
        ("node 10.128.0.103", Some(NodeId::from("10.128.0.103")))
    );
    assert!(
        !case.reasoning.join(" ").contains("10.128.0.32 wrote"),
        "{:?}",
        case.reasoning
    );
    for line in [
        "[2026-05-02T08:00:00.000] error: Nodes gpu-7 not responding",
        "May  2 08:00:00 ctl1 slurmctld[77]: error: Nodes gpu-7 not responding, setting DOWN",
        "12m  Warning  NodeNotReady  node/gpu-7  Node gpu-7 status is now: NodeNotReady",
        "May  2 08:00:00 ctl1 kube-controller-manager[9]: Node gpu-7 status is now: NodeNotReady",
        "I0502 08:00:00.000000 1 controller_utils.go:137] \"Recording status change event message for node\" status=\"NodeNotReady\" \
         node=\"gpu-7\"",
    ] {
        let case = only(&[("ctl.log", &format!("{line}\n"))]);
        let named = case.root_node.as_ref().map(NodeId::as_str);
        assert_eq!(
            (case.blamed.as_str(), named),
            ("node gpu-7", Some("gpu-7")),
            "{line}: {case:?}"
        );
    }
}

/// simpleRL-reason#25.
#[test]
fn the_node_of_a_rank_that_waited_in_vain_is_stated() {
    let log = "(ActorModelRayActorBOX pid=4954, ip=10.7.35.246) [2025-02-03 10:34:03,841 E 4954 6881] logging.cc:101: Unhandled \
               exception: N3c1016DistBackendErrorE. what(): [PG ID 0 PG GUID 0(default_pg) Rank 5] Process group watchdog thread \
               terminated with exception: [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1495581, \
               OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1800092 milliseconds before timing out.\n";
    let case = only(&[("run.log", log)]);
    assert_eq!(case.class, "nccl-timeout");
    assert!(
        case.reasoning.join(" ").contains("10.7.35.246 wrote"),
        "{:?}",
        case.reasoning
    );
}

/// NVIDIA/pyxis: the label of `srun -l` is that of the task which prints the message.
#[test]
fn an_image_that_no_task_can_pull_is_not_the_fault_of_a_rank() {
    let log = "0: slurmstepd: error: pyxis: failed to import docker image\n0: slurmstepd: error: pyxis:     [ERROR] URL \
               https://registry-1.docker.io/v2/nvcr.io/nvidia/pytorch/manifests/20.12-py3 returned error code: 401 Unauthorized\n";
    let case = only(&[("run.log", log)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("k8s-image-pull", "the job")
    );
    assert_eq!(case.root_rank, None);
}

/// Logs of four ranks on two nodes: those of `lacking` cannot open a file.
fn ranks(lacking: &[u32], error: &str, others: &str) -> Vec<(String, String)> {
    (0..4u32)
        .map(|rank| {
            let node = if rank < 2 { "tcn1" } else { "tcn2" };
            let text = if lacking.contains(&rank) {
                format!(
                    "2026-05-02 08:00:00 start\nTraceback (most recent call last):\n  File \"/srv/fit.py\", line 9, in <module>\n    \
                     main()\n{error}\n"
                )
            } else {
                let mut text = "2026-05-02 08:00:00 start\n".to_owned();
                let _ = write!(text, "{others}");
                text
            };
            (format!("{node}/rank{rank}.log"), text)
        })
        .collect()
}

fn named(files: &[(String, String)]) -> Vec<(&str, &str)> {
    files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect()
}

#[test]
fn a_path_that_only_the_ranks_of_one_node_miss_points_to_the_node() {
    let absent = "FileNotFoundError: [Errno 2] No such file or directory: '/srv/shared/vocab.txt'";
    let work = "2026-05-02 08:00:01 step 1 loss 2.0\n2026-05-02 08:00:02 step 2 loss 1.9\n";
    let files = ranks(&[2, 3], absent, work);
    let case = only(&named(&files));
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("file-not-found", "node tcn2"),
        "{case:?}"
    );
    assert!(
        case.reasoning.join(" ").contains("All 2 ranks on node tcn2"),
        "{:?}",
        case.reasoning
    );
    // The others may not have come that far.
    let case = only(&named(&ranks(&[2, 3], absent, "")));
    assert_eq!(case.blamed, "the job", "{case:?}");
    // A path that ranks of both nodes miss, and a mistake of the program, are of the job.
    for (lacking, error) in [
        (&[1, 2, 3][..], absent),
        (&[0, 1, 2, 3], absent),
        (&[2, 3], "KeyError: 'label'"),
    ] {
        let case = only(&named(&ranks(lacking, error, work)));
        assert_eq!(case.blamed, "the job", "{error}: {case:?}");
        assert!(
            !case.reasoning.join(" ").contains("ranks on node"),
            "{:?}",
            case.reasoning
        );
    }
}
