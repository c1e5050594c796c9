//! Folders of logs: hosts that libraries and launchers name in their own line formats, sources by the form of lines, and years.

use rankguard_model::{NodeId, Timestamp};
use rankguard_offline::OfflineCase;

use crate::folders::{diagnose, group_written_by};

fn only(files: &[(&str, &str)]) -> OfflineCase {
    let cases = diagnose(files);
    assert_eq!(cases.len(), 1, "{files:?}: {cases:?}");
    cases.into_iter().next().unwrap()
}

fn has_reason(case: &OfflineCase, part: &str) -> bool {
    case.reasoning.iter().any(|reason| reason.contains(part))
}

/// NVIDIA/nccl#1488.
const SHARP: &str = "node23:12098:12141 [2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'\n\
                     node23:12098:12141 [2] NCCL INFO transport/nvls.cc:394 -> 1\n\
                     node23:12098:12141 [2] NCCL INFO init.cc:1196 -> 1\n";

#[test]
fn a_fault_of_a_machine_blames_the_host_in_the_lines_of_nccl() {
    let case = only(&[("run.log", SHARP)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str(), case.root_node.clone()),
        ("fabric-manager-not-ready", "node node23", Some(NodeId::from("node23")))
    );
    // The line reports an invalid argument, and the class is an inference.
    assert!(has_reason(&case, "an error without its cause"), "{:?}", case.reasoning);
    assert!(!has_reason(&case, "names its cause itself"), "{:?}", case.reasoning);
}

/// openucx/ucx#5199 and a case of three nodes (NCCL's format).
#[test]
fn a_network_error_names_the_nodes_that_report_it_and_blames_none_of_them() {
    let ucx = "[head:19546:0:19546] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 \
               hw_synd 0/0)\n[head:19545:0:19545] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 \
               vend 0x81 hw_synd 0/0)\n";
    let case = only(&[("run.log", ucx)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("ib-rdma-error", "the network of node head")
    );
    assert!(has_reason(&case, "Node head wrote the lines"), "{:?}", case.reasoning);
    let completion = |host: &str, peer: &str| {
        format!(
            "{host}:19989:20082 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer \
             fe80::966d:ae03:{peer}%ib0<53249> with error 4, opcode 32564, len 32564, vendor err 81 (Send)\n"
        )
    };
    let nccl = [
        completion("H100-2", "8b:df78"),
        completion("H100-1", "8b:df50"),
        completion("H100-5", "9c:f5f8"),
    ]
    .concat();
    let case = only(&[("run.log", &nccl)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("ib-rdma-error", "the network between the machines")
    );
    assert!(
        has_reason(&case, "Nodes H100-1, H100-2, H100-5 wrote"),
        "{:?}",
        case.reasoning
    );
}

/// horovod/horovod#1950.
const PEER: &str = "An MPI communication peer process has unexpectedly disconnected.  This\n\
                    usually indicates a failure in the peer process (e.g., a crash or\n\
                    otherwise exiting without calling MPI_FINALIZE first).\n\n\
                    \x20 Local host: reco-zl-c4-reco313\n  Local PID:  7720\n  Peer host:  reco-zl-c4-reco316\n";

#[test]
fn a_host_without_a_report_is_no_failure() {
    for line in ["  Peer host:  n4\n", "=   PID 4827 RUNNING AT n4\n"] {
        assert!(diagnose(&[("run.log", line)]).is_empty(), "{line}");
    }
}

#[test]
fn the_peer_that_open_mpi_names_is_blamed() {
    let case = only(&[("run.log", PEER)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("remote-worker-lost", "node reco-zl-c4-reco316")
    );
}

/// radical.pilot#2164.
#[test]
fn open_mpi_states_that_it_ends_the_job() {
    let lost = "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[27407,0],0] on node batch2\n  Remote daemon: \
                [[27407,0],1] on node d23n02\n\nThis is usually due to either a failure of the TCP network\nconnection to the \
                node, or possibly an internal failure of\nthe daemon itself. We cannot recover from this failure, and\n";
    let stated = "therefore will terminate the job.\n";
    let rest = "-".repeat(74) + "\n" + &"\n".repeat(4);
    let doubt = "No line states that a run ended in failure";
    assert!(has_reason(&only(&[("run.log", &format!("{lost}{rest}"))]), doubt));
    let case = only(&[("run.log", &format!("{lost}{stated}{rest}"))]);
    assert!(!has_reason(&case, doubt), "{:?}", case.reasoning);
    assert_eq!(case.blamed, "node d23n02");
}

/// pyiron/executorlib#192 and a segmentation fault of Open MPI.
#[test]
fn launchers_name_the_host_of_the_process_that_ended() {
    let block = |number: u32, text: &str| {
        format!(
            "===================================================================================\n=   BAD TERMINATION OF ONE OF \
             YOUR APPLICATION PROCESSES\n=   PID 4827 RUNNING AT fv-az1256-113\n=   EXIT CODE: {number}\n=   CLEANING UP \
             REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n===============\nYOUR APPLICATION TERMINATED \
             WITH THE EXIT STRING: {text} (signal {number})\n"
        )
    };
    for (number, text, class) in [
        (15, "Terminated", "external-termination"),
        (11, "Segmentation fault", "segfault"),
    ] {
        let case = only(&[("run.log", &block(number, text))]);
        assert_eq!(
            (case.class.as_str(), case.root_node.clone()),
            (class, Some(NodeId::from("fv-az1256-113"))),
            "{text}"
        );
        assert!(has_reason(&case, "ran on node fv-az1256-113"), "{:?}", case.reasoning);
    }
    let crash = "[good:02773] *** Process received signal ***\n[good:02773] Signal: Segmentation fault (11)\n[good:02773] Signal \
                 code: Invalid permissions (2)\n[good:02773] Failing at address: 0x7f1246cb4a00\n";
    let case = only(&[("run.log", crash)]);
    assert_eq!(
        (case.class.as_str(), case.root_node),
        ("segfault", Some(NodeId::from("good")))
    );
}

/// jade-hpc#14 and a MooseFS mount.
#[test]
fn the_form_of_the_lines_decides_whether_a_machine_wrote_them() {
    let ring = "[Mon Oct 16 09:54:43 2017] LNet: 2431:0:(o2iblnd_cb.c:3174:kiblnd_check_conns()) Timed out tx for \
                172.31.126.87@o2ib: 403055 seconds\n[Mon Oct 16 10:06:17 2017] LustreError: 11-0: jm-MDT0000-mdc: operation \
                obd_ping to node 172.31.126.88@o2ib failed: rc = -107\n";
    for name in ["messages", "syslog", "n1.txt", "dmesg"] {
        let cases = diagnose(&[(name, ring)]);
        let found: Vec<_> = cases
            .iter()
            .map(|case| (case.class.as_str(), case.blamed.as_str()))
            .collect();
        let expected = [
            ("filesystem-hang", "server 172.31.126.87@o2ib"),
            ("filesystem-hang", "server 172.31.126.88@o2ib"),
        ];
        assert_eq!(found, expected, "{name}");
        assert!(
            has_reason(&cases[0], "the kernel log"),
            "{name}: {:?}",
            cases[0].reasoning
        );
    }
    let mount = "Sep  9 09:39:05 n4 mfsmount[28930]: file: 472044, index: 1 - fs_writechunk returns status: No space left\n\
                 Sep  9 09:39:05 n4 mfsmount[28930]: error writing file number 472044: ENOSPC (No space left on device)\n";
    let case = only(&[("messages", mount)]);
    assert_eq!((case.class.as_str(), case.blamed.as_str()), ("disk-full", "node n4"));
    // A program that writes the same stamp, and a program of a job below the tag of its unit.
    let apache = "[Mon Oct 16 09:54:43 2017] [error] OSError: [Errno 28] No space left on device\n";
    assert_eq!(
        only(&[("train.log", apache)]).blamed,
        "a file system that the log does not name"
    );
    let unit = "Sep  9 09:39:05 n4 finetune[77]: loading shard 3\nSep  9 09:39:06 n4 finetune[77]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB\n";
    assert_eq!(only(&[("messages", unit)]).class, "cuda-oom");
}

/// aws-parallelcluster#2701.
#[test]
fn seconds_since_1970_in_a_line_decide_its_year() {
    let written = Timestamp::from_millis(1_795_000_000_000);
    let lost = "Apr 30 13:50:10 ip-10-0-33-4 kernel: [268274.472582] Lustre: no2-MDT0000-mdc-1: Connection to no2-MDT0000 (at \
                10.0.47.232@tcp) was lost; in progress operations using this service will wait for recovery to complete\n";
    let sent = "Apr 30 13:50:16 ip-10-0-33-4 kernel: [268280.616562] Lustre: 3315:0:(client.c:2116:ptlrpc_expire_one_request()) @@@ \
                Request sent has timed out for slow reply: [sent 1619790610/real 1619790610]  req@0000000052a0ed37 \
                x1698193162592192/t0(0) o38->no2\n";
    let first = |text: &str| {
        let case = group_written_by(&[("messages", text)], Some(written)).cases.remove(0);
        (case.first_at.unwrap(), case.first_at_note.is_some())
    };
    assert_eq!(
        first(&format!("{lost}{sent}")),
        ("2021-04-30T13:50:10.000Z".to_owned(), false)
    );
    // Without one, and with a number of another day, the year is that of the file.
    assert_eq!(first(lost), ("2026-04-30T13:50:10.000Z".to_owned(), true));
    let other = lost.replace("no2-MDT0000-mdc-1", "no2-MDT0000-mdc-1619000000");
    assert_eq!(first(&other), ("2026-04-30T13:50:10.000Z".to_owned(), true));
}

/// ray-project/ray#34695.
#[test]
fn times_of_the_processes_of_ray_are_read() {
    let raylet = "[2023-04-19 16:22:19,798 E 329 329] (raylet) node_manager.cc:3069: 13 Workers (tasks / actors) killed due to \
                  memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 2875, IP: 10.0.10.135) over the \
                  last time period.\n";
    let case = only(&[("raylet.out", raylet)]);
    assert_eq!(
        (case.class.as_str(), case.first_at.as_deref()),
        ("host-oom-kill", Some("2023-04-19T16:22:19.798Z"))
    );
}
