//! Folders of logs with chains of faults of one machine, quoted exceptions, and what lines name.

use rankguard_offline::OfflineCase;

use crate::folders::diagnose;

fn only(files: &[(&str, &str)]) -> OfflineCase {
    let cases = diagnose(files);
    let classes: Vec<&str> = cases.iter().map(|case| case.class.as_str()).collect();
    assert_eq!(cases.len(), 1, "{classes:?} in {files:?}");
    cases.into_iter().next().expect("one case")
}

fn says(case: &OfflineCase, words: &str) -> bool {
    case.reasoning.iter().any(|reason| reason.contains(words))
}

fn check(files: &[(&str, &str)], class: &str, blamed: &str) -> OfflineCase {
    let case = only(files);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        (class, blamed),
        "{case:#?}"
    );
    assert!(!says(&case, "which does not explain it"), "{case:#?}");
    case
}

fn lines(texts: &[&str]) -> String {
    let lines = texts.iter().enumerate();
    lines
        .map(|(number, text)| format!("2026-01-14T22:05:09.{number}00000+00:00 dgx4 kernel: {text}\n"))
        .collect()
}

const SWITCH: &str = "nvidia-nvswitch1: SXid (PCI:0000:a6:00.0): 20034, Fatal, Link 11 LTSSM Fault Up";
const LINK: &str =
    "NVRM: Xid (PCI:0000:0f:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 7";
const OTHER_LINK: &str =
    "NVRM: Xid (PCI:0000:47:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 2";

#[test]
fn link_errors_of_gpus_follow_from_a_fatal_error_of_their_switch() {
    let case = check(
        &[("kern.log", &lines(&[SWITCH, LINK, OTHER_LINK]))],
        "nvswitch-error",
        "nvswitch 0000:a6:00 of node dgx4",
    );
    assert!(
        says(&case, "reports gpu-nvlink-error, the first of 2 messages"),
        "{case:#?}"
    );
    // An event that accompanies others, before errors of several GPUs.
    let heartbeat =
        "nvidia-nvswitch1: SXid (PCI:0000:a6:00.0): 19084, Fatal, Link 11 AN1 Heartbeat Timeout Error (First)";
    check(
        &[("kern.log", &lines(&[heartbeat, LINK, OTHER_LINK]))],
        "nvswitch-error",
        "nvswitch 0000:a6:00 of node dgx4",
    );
}

#[test]
fn an_error_of_a_switch_after_that_of_a_gpu_is_not_the_cause() {
    let case = &diagnose(&[("kern.log", &lines(&[LINK, SWITCH]))])[0];
    assert_eq!(case.class, "gpu-nvlink-error", "{case:#?}");
    let minor = SWITCH.replace("20034, Fatal", "22013, Non-fatal");
    let case = &diagnose(&[("kern.log", &lines(&[&minor, LINK]))])[0];
    assert_eq!(case.class, "gpu-nvlink-error", "{case:#?}");
    let heartbeat =
        "nvidia-nvswitch1: SXid (PCI:0000:a6:00.0): 19084, Fatal, Link 11 AN1 Heartbeat Timeout Error (First)";
    let case = &diagnose(&[("kern.log", &lines(&[heartbeat, LINK]))])[0];
    assert_eq!(case.class, "gpu-nvlink-error", "{case:#?}");
}

const BUS: &str = "pcieport 0000:b0:02.0: AER: Uncorrected (Fatal) error message received from 0000:b3:00.0";

#[test]
fn a_lost_device_follows_from_a_fatal_error_of_its_bus() {
    let gpu = "NVRM: Xid (PCI:0000:b3:00): 79, pid=4410, name=python, GPU has fallen off the bus.";
    check(
        &[("kern.log", &lines(&[BUS, gpu]))],
        "pcie-error",
        "gpu 0000:b3:00 of node dgx4",
    );
    let contained = "pcieport 0000:b0:02.0: DPC: containment event, status:0x1f01 source:0xb300";
    check(
        &[("kern.log", &lines(&[contained, gpu]))],
        "pcie-error",
        "gpu 0000:b3:00 of node dgx4",
    );
    let nic = "mlx5_core 0000:b3:00.0: poll_health:905:(pid 0): device's health compromised - reached miss count";
    check(
        &[("kern.log", &lines(&[BUS, nic]))],
        "pcie-error",
        "nic 0000:b3:00 of node dgx4",
    );
    // Another device, and the reverse order.
    let other = gpu.replace("b3:00", "43:00");
    assert_eq!(diagnose(&[("kern.log", &lines(&[BUS, &other]))]).len(), 2);
    let case = &diagnose(&[("kern.log", &lines(&[gpu, BUS]))])[0];
    assert_eq!(case.class, "gpu-fallen-off-bus", "{case:#?}");
}

#[test]
fn failed_reads_follow_from_a_client_that_lost_its_file_system() {
    let read = "2026-01-14 22:05:09 OSError: [Errno 116] Stale file handle: '/lab/fs4/set/shard-09.tar'\n";
    for words in [
        "[E] Lost membership in cluster lab.fs. Unmounting file systems.",
        "[E] Lost membership in cluster lab.fs.  Unmounting file systems.",
    ] {
        let daemon = format!("Jan 14 22:05:02 dgx4 mmfs[901]: {words}\n");
        let case = check(
            &[("dgx4.messages", &daemon), ("dgx4.rank6.log", read)],
            "filesystem-hang",
            "node dgx4",
        );
        assert!(says(&case, "which follows from it"), "{case:#?}");
        assert!(!says(&case, "the job's log"), "{case:#?}");
        let own = format!("2026-01-14_22:05:02.500+0000: {words}\n");
        let case = only(&[("dgx4/mmfs.log.latest", &own), ("dgx4/rank6.log", read)]);
        assert_eq!(case.class, "filesystem-hang", "{case:#?}");
    }
    // The read failed long before.
    let daemon = "Jan 14 22:06:30 dgx4 mmfs[901]: [E] Lost membership in cluster lab.fs. Unmounting file systems.\n";
    let case = &diagnose(&[("dgx4.messages", daemon), ("dgx4.rank6.log", read)])[0];
    assert_eq!(case.class, "storage-io-error", "{case:#?}");
    // Another node lost the file system.
    let daemon = "Jan 14 22:05:02 dgx7 mmfs[901]: [E] Lost membership in cluster lab.fs. Unmounting file systems.\n";
    let case = &diagnose(&[
        ("dgx7/messages", daemon),
        ("dgx4/messages", "Jan 14 22:05:00 dgx4 sshd[1]: up\n"),
        ("dgx4/rank6.log", read),
    ])[0];
    assert_eq!(case.class, "storage-io-error", "{case:#?}");
}

/// Each class of a chain of exceptions is that of one of them.
#[test]
fn the_quoted_exception_is_the_classified_one() {
    let chain = |first: &str, second: &str| {
        format!(
            "Traceback (most recent call last):\n  File \"feed.py\", line 3, in pull\n    sock.read()\n{first}\n\nDuring \
             handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \
             \"fit.py\", line 9, in <module>\n    pull()\n  File \"feed.py\", line 5, in pull\n    give_up(x)\n{second}\n"
        )
    };
    for first in [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ] {
        for second in [
            "NameError: name 'tries' is not defined",
            "ValueError: feed is closed",
            "AttributeError: 'Feed' object has no attribute 'tries'",
        ] {
            let case = only(&[("rank3.log", &chain(first, second))]);
            let of_first = ["connection-reset", "remote-worker-lost"].contains(&case.class.as_str());
            let (text, line) = if of_first { (first, 4) } else { (second, 13) };
            assert!(says(&case, &format!("says \"{text}\"")), "{case:#?}");
            assert_eq!(
                (case.key_lines[0].text.as_str(), case.key_lines[0].line),
                (text, line),
                "{case:#?}"
            );
        }
    }
}

#[test]
fn a_local_rank_of_one_of_several_nodes_is_no_rank_of_the_job() {
    for (code, class) in [(-11, "segfault"), (-9, "killed-by-signal")] {
        let ended = format!(
            "trn6: [2026-01-14 22:05:09,311] ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: {code}) \
             local_rank: 2 (pid: 4021) of binary: /opt/py/bin/python\n"
        );
        let case = only(&[("launch.log", &ended)]);
        assert_eq!(case.class, class, "{case:#?}");
        assert_eq!(case.root_rank, None, "{case:#?}");
        assert_eq!(
            case.root_node.as_ref().map(|node| node.as_str()),
            Some("trn6"),
            "{case:#?}"
        );
        assert!(
            says(&case, "The launcher of node trn6 reports local rank 2"),
            "{case:#?}"
        );
        // Without a node in front, the launcher is the only one.
        let case = only(&[("launch.log", ended.trim_start_matches("trn6: "))]);
        assert_eq!(case.root_rank.map(|rank| rank.0), Some(2), "{case:#?}");
    }
}

/// Launchers of several nodes label each line of a traceback.
#[test]
fn a_label_of_a_node_is_no_part_of_a_traceback() {
    let log = "trn6: Traceback (most recent call last):\ntrn6:   File \"/srv/fit.py\", line 31, in <module>\ntrn6:     \
               fit(cfg)\ntrn6: ValueError: 12 heads, width 100\ntrn6: [2026-01-14 22:05:09,311] [ERROR] \
               [launch.py:322:sigkill_handler] ['/opt/py/bin/python', '-u', 'fit.py', '--local_rank=2'] exits with return \
               code = 1\n";
    let case = only(&[("launch.log", log)]);
    assert_eq!(
        (case.class.as_str(), case.root_rank),
        ("python-value-error", None),
        "{case:#?}"
    );
    assert_eq!(
        case.root_node.as_ref().map(|node| node.as_str()),
        Some("trn6"),
        "{case:#?}"
    );
    assert!(says(&case, "says \"ValueError: 12 heads, width 100\""), "{case:#?}");
    assert!(says(&case, "The label of its line names node trn6."), "{case:#?}");
    let case = only(&[("fit.log", "attempt3: ValueError: 12 heads, width 100\n")]);
    assert_eq!(case.root_node, None, "{case:#?}");
}

#[test]
fn what_lines_name_is_blamed() {
    let ended = "srun: error: trn6: tasks 8-15: Terminated\nsrun: Terminating StepId=44.0\n";
    let case = only(&[("slurm-44.out", ended)]);
    assert_eq!(case.blamed, "the job", "{case:#?}");
    assert!(says(&case, "The blame is on the job"), "{case:#?}");
    let memory = "1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at \
                  node (ID: 5f, IP: 10.4.0.19) over the last time period.\n";
    let case = only(&[("ray.log", memory)]);
    assert_eq!(case.blamed, "node 10.4.0.19", "{case:#?}");
    let port = "CA 'mlx5_1'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n\t\tRate: 10\n";
    let case = only(&[("ibstat.txt", port)]);
    assert_eq!(case.blamed, "a machine that the log does not name", "{case:#?}");
    assert!(says(&case, "The logs name no machine to blame"), "{case:#?}");
    // A port that is switched off is no failure.
    let off = port.replace("Polling", "Disabled");
    let status = "Infiniband device 'mlx5_2' port 1 status:\n\tstate:\t\t 1: DOWN\n\tphys state:\t 3: Disabled\n";
    let brief = "mlx5_2 port 1 state DOWN, physical state Disabled\nmlx5_3 port state: disabled\n";
    for listing in [off.as_str(), status, brief] {
        let cases = diagnose(&[("ibstat.txt", listing)]);
        assert!(cases.is_empty(), "{listing}: {cases:#?}");
    }
}

#[test]
fn repeats_are_counted() {
    let full = |second: u32, part: u32| {
        format!(
            "2026-01-14T22:{:02}:{:02}Z OSError: [Errno 28] No space left on device: '/out/p{part}'\n",
            5 + second / 60,
            second % 60
        )
    };
    let every: String = (0..25).map(|number| full(number * 10, 1)).collect();
    let case = only(&[("rank1.log", &every)]);
    assert!(
        says(&case, "After it, the log of rank 1 reports disk-full, 24 more messages"),
        "{case:#?}"
    );
    let burst: String = (0..40).map(|number| full(7, number)).collect();
    let case = only(&[(
        "rank1.log",
        &format!("{}{burst}", full(0, 1).replace("'/out/p1'", "'/out/x/y'")),
    )]);
    assert!(
        says(
            &case,
            "7.0 s later, the log of rank 1 reports disk-full, the first of 40 messages"
        ),
        "{case:#?}"
    );
}
