//! Folders of logs with messages that state their own cause, their job, or what their device needs.

use rankguard_model::{Role, Timestamp};
use rankguard_offline::OfflineCase;

use crate::folders::{diagnose, group_written_by};

fn only(files: &[(&str, &str)]) -> OfflineCase {
    let cases = diagnose(files);
    let classes: Vec<&str> = cases.iter().map(|case| case.class.as_str()).collect();
    assert_eq!(cases.len(), 1, "{classes:?}");
    cases.into_iter().next().expect("one case")
}

fn has_reason(case: &OfflineCase, words: &str) -> bool {
    case.reasoning.iter().any(|reason| reason.contains(words))
}

/// Returns the text of the line of the first cause.
fn root(case: &OfflineCase) -> &str {
    let root = case.key_lines.iter().find(|line| line.role == Role::Root);
    root.map_or("", |line| line.text.as_str())
}

const LOST: &str = "2026-06-01T15:55:06.218036+03:00 isaac kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=30393, name=Media, GPU \
                    has fallen off the bus.\n\
                    2026-06-01T15:55:06.218447+03:00 isaac kernel: NVRM: nvCheckOkFailedNoLog: Check failed: GPU lost from \
                    the bus [NV_ERR_GPU_IS_LOST] (0x0000000F)\n";

#[test]
fn of_two_reports_of_one_loss_the_earlier_one_is_the_first_cause() {
    let case = only(&[("kern.log", LOST)]);
    assert_eq!(case.class, "gpu-fallen-off-bus");
    assert!(root(&case).contains("79, pid=30393"), "{:?}", case.key_lines);
    assert!(!has_reason(&case, "earlier"), "{:?}", case.reasoning);
    // A check of the driver is no defect of a framework.
    assert!(!has_reason(&case, "framework-bug"), "{:?}", case.reasoning);
    // The driver may report the loss before it names the device.
    let lines: Vec<&str> = LOST.lines().collect();
    let unnamed = lines[1].replace("218447", "217447");
    let case = only(&[("kern.log", &format!("{unnamed}\n{}\n", lines[0]))]);
    assert!(root(&case).contains("nvCheckOkFailedNoLog"), "{:?}", case.key_lines);
    assert_eq!(case.blamed, "gpu 0000:01:00 of node isaac");
}

fn torn(gpu: &str, channel: u32, earlier: u32) -> String {
    format!(
        "kernel: NVRM: Xid (PCI:0000:{gpu}:00): 45, pid=1818990, name=python3, Ch {channel:08} caused by previous Xid {earlier}\n"
    )
}

#[test]
fn of_gpus_whose_channels_were_torn_down_none_is_known_as_the_first() {
    let lines = [
        torn("dc", 1, 149),
        torn("ed", 12, 145),
        torn("ba", 2, 145),
        torn("dc", 2, 149),
    ]
    .concat();
    let case = only(&[("kern.log", &lines)]);
    assert_eq!(
        (case.class.as_str(), case.action.as_str()),
        ("gpu-nvlink-error", "replace-node")
    );
    assert!(!case.blamed.contains("gpu"), "{}", case.blamed);
    assert!(
        has_reason(&case, "3 GPUs of the node report it"),
        "{:?}",
        case.reasoning
    );
    assert!(!has_reason(&case, "follows from it"), "{:?}", case.reasoning);
    assert!(!has_reason(&case, "The first cause"), "{:?}", case.reasoning);
    // One GPU is blamed.
    let case = only(&[("kern.log", &[torn("dc", 1, 149), torn("dc", 2, 149)].concat())]);
    assert_eq!(case.blamed, "gpu 0000:dc:00");
    // The event of a GPU is the first cause, and the message of another one names an event of its own.
    let event = "kernel: NVRM: Xid (PCI:0000:dc:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 \
                 0x00000000 0x00000000 0x00000000)\n";
    let case = only(&[("kern.log", &[event, &torn("ed", 12, 145)].concat())]);
    assert_eq!(case.blamed, "gpu 0000:dc:00", "{:?}", case.reasoning);
    assert!(
        has_reason(&case, "which names XID 145 of its own GPU as its cause"),
        "{:?}",
        case.reasoning
    );
}

const CONNECT: &str = "ubuntu:39964:40075 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : \
                       Software caused connection abort\n\
                       ubuntu:39964:40075 [0] NCCL INFO misc/socket.cc:564 -> 2\n\
                       ubuntu:39964:40075 [0] proxy.cc:1519 NCCL WARN [Proxy Service 0] Failed to execute operation Connect \
                       from rank 0, retcode 2\n";
const CLOSED: &str = "ubuntu:39964:40044 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer \
                      node1<57557>\n";

#[test]
fn a_peer_that_closes_after_the_failed_connect_of_the_same_process_is_not_the_first_cause() {
    let case = only(&[("nccl.log", &format!("{CONNECT}{CLOSED}"))]);
    assert_eq!(case.class, "nccl-system-error", "{:?}", case.reasoning);
    assert!(root(&case).contains("10.0.0.2<45763>"), "{:?}", case.key_lines);
    assert!(
        has_reason(&case, "remote-worker-lost, which follows from it"),
        "{:?}",
        case.reasoning
    );
    // The peer closed first, or another process lost its peer.
    for lines in [
        format!("{CLOSED}{CONNECT}"),
        format!("{CONNECT}{}", CLOSED.replace("39964", "41000")),
    ] {
        let case = only(&[("nccl.log", &lines)]);
        assert_eq!(case.class, "remote-worker-lost", "{:?}", case.reasoning);
    }
}

const LIMIT: &str = "[14:02:04] align: 'NA12878' with 8 threads\n\
                     slurmstepd: error: *** JOB 10763635 ON c0662 CANCELLED AT 2026-10-02T14:02:37 DUE TO TIME LIMIT ***\n";

#[test]
fn the_row_of_another_job_follows_from_nothing() {
    let row = |id: &str| format!("{id}   w2-fail3  CANCELLED   0:0   None 2026-10-02T14:09:19  Dependency\n");
    let limit = "10763635_1   w2-timeout   TIMEOUT   00:02:11   8   0:0\n";
    let case = only(&[
        ("sacct.txt", &format!("{limit}{}", row("10763637"))),
        ("slurm.out", LIMIT),
    ]);
    assert_eq!(case.class, "slurm-time-limit");
    assert!(
        has_reason(&case, "which is about another job, 10763637"),
        "{:?}",
        case.reasoning
    );
    assert!(!has_reason(&case, "Considered and set aside"), "{:?}", case.reasoning);
    // The row has no time; the message of the daemon has one.
    assert_eq!(case.first_at.as_deref(), Some("2026-10-02T14:02:37.000Z"));
    // A step of the same job.
    let case = only(&[("sacct.txt", &format!("{limit}{}", row("10763635_1.0")))]);
    assert!(!has_reason(&case, "another job"), "{:?}", case.reasoning);
}

fn contained(reset: &str) -> String {
    format!(
        "2026-08-09T13:32:56+00:00 node4 kernel: NVRM: Xid (PCI:0000:00:08): 94, pid='<unknown>', name=<unknown>, Contained: SM \
         (0x1). RST: {reset}, D-RST: No\n"
    )
}

#[test]
fn a_contained_error_needs_the_reset_that_the_driver_states() {
    let case = only(&[("kern.log", &contained("No"))]);
    assert_eq!(
        (case.class.as_str(), case.action.as_str()),
        ("gpu-ecc-contained", "restart-in-place")
    );
    assert!(case.advice.contains("needs no reset"), "{}", case.advice);
    assert!(!case.clears.contains("reset"), "{}", case.clears);
    let case = only(&[("kern.log", &contained("Yes"))]);
    assert!(case.advice.contains("reset the GPU"), "{}", case.advice);
    // A row that waits for its replacement needs one.
    let row = "2026-08-09T13:32:57+00:00 node4 kernel: NVRM: Xid (PCI:0000:00:08): 63, pid='<unknown>', name=<unknown>, Row \
               Remapper: New row (0x0000000123456789) marked for remapping, reset gpu to activate.\n";
    let case = only(&[("kern.log", &format!("{}{row}", contained("No")))]);
    assert!(case.advice.contains("reset the GPU"), "{}", case.advice);
    assert!(case.clears.contains("reset"), "{}", case.clears);
}

fn child(code: &str) -> String {
    format!(
        "[2024-03-20 20:31:29,210] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 3353707\n\
         [2024-03-20 20:31:29,269] [ERROR] [launch.py:321:sigkill_handler] ['/opt/bin/python', '-u', 'train.py', \
         '--local_rank=4', '--stage', 'sft'] exits with return code = {code}\n"
    )
}

/// DeepSpeed quotes the command that it started last.
#[test]
fn the_command_that_a_launcher_quotes_names_no_rank() {
    for code in ["1", "-11"] {
        let case = only(&[("train.log", &child(code))]);
        assert_eq!(case.root_rank, None, "{code}: {:?}", case.reasoning);
    }
}

#[test]
fn a_bus_error_points_to_shared_memory_first() {
    let case = only(&[("train.log", &child("-7"))]);
    assert_eq!(case.class, "segfault");
    assert!(case.advice.contains("/dev/shm"), "{}", case.advice);
    assert!(has_reason(&case, "SIGBUS"), "{:?}", case.reasoning);
    let case = only(&[("train.log", &child("-11"))]);
    assert!(!case.advice.contains("/dev/shm"), "{}", case.advice);
}

#[test]
fn a_save_without_a_retry_left_has_failed() {
    let save = |left: u32| {
        format!(
            "2024-08-21 17:43:48,120 WARNING: Save model error: [enforce fail at inline_container.cc:595] . unexpected pos 64 vs 0, \
             remaining retry times: {left}\n"
        )
    };
    let case = only(&[("out.log", &[save(1), save(0)].concat())]);
    assert_eq!(case.class, "checkpoint-write-failure");
    assert!(diagnose(&[("out.log", &save(1))]).is_empty());
}

#[test]
fn a_year_that_no_line_states_is_marked() {
    let line = "[rank6]:[E429 13:55:49.384372190 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 6] \
                ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued \
                collectives.\n";
    let written = Timestamp(1_777_593_600_000_000_000);
    let first = |log: &str| {
        let cases = group_written_by(&[("train.log", log)], Some(written)).cases;
        cases.into_iter().next().expect("a case")
    };
    let case = first(line);
    assert_eq!(case.first_at.as_deref(), Some("2026-04-29T13:55:49.384Z"));
    assert!(case.first_at_note.is_some_and(|note| note.contains("year")));
    // Another line of the log states the year.
    let case = first(&format!("2025-04-29 13:40:00,120 INFO step 12 loss 2.3\n{line}"));
    assert_eq!(case.first_at.as_deref(), Some("2025-04-29T13:55:49.384Z"));
    assert_eq!(case.first_at_note, None);
}
