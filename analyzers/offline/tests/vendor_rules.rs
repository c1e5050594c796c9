//! Folders of logs: what vendors of devices, daemons, schedulers and Kubernetes state about their own messages.

use rankguard_model::Rank;
use rankguard_offline::OfflineCase;

use crate::folders::{diagnose, group};

fn only(files: &[(&str, &str)]) -> OfflineCase {
    let cases = diagnose(files);
    let classes: Vec<&str> = cases.iter().map(|case| case.class.as_str()).collect();
    assert_eq!(cases.len(), 1, "{classes:?}");
    cases.into_iter().next().expect("one case")
}

fn says(case: &OfflineCase, words: &str) -> bool {
    case.reasoning.iter().any(|reason| reason.contains(words))
}

/// Returns lines of the kernel log of node b7, one a second from 08:00:01.
fn kernel_log(lines: &[&str]) -> String {
    let line = |(at, text): (usize, &&str)| format!("2026-05-02T08:00:0{}.000000+00:00 b7 kernel: {text}\n", at + 1);
    lines.iter().enumerate().map(line).collect()
}

const GSP: &str = "NVRM: Xid (PCI:0000:4f:00): 119, pid=555, name=python3, Timeout after 6s of waiting for RPC response from \
                   GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x4).";
const DBE: &str = "NVRM: Xid (PCI:0000:4f:00): 48, pid=555, name=python3, An uncorrectable double bit error (DBE) has been \
                   detected on GPU in the framebuffer at partition 6, subpartition 1.";
const REMAP_FAILED: &str = "NVRM: Xid (PCI:0000:4f:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: Row remapping \
                            failure, bank 5.";

/// Returns the driver's request of a recovery of a GPU.
fn request(gpu: &str, from: &str, to: &str) -> String {
    format!(
        "NVRM: Xid (PCI:{gpu}): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from {from} to {to}"
    )
}

#[test]
fn the_recovery_that_the_driver_requests_is_the_action() {
    let general = only(&[("b7.kern.log", &kernel_log(&[GSP]))]);
    assert_eq!(
        (general.class.as_str(), general.action.as_str()),
        ("gpu-gsp-timeout", "reset-gpu")
    );
    assert!(!general.advice.contains("154"), "{}", general.advice);
    for (to, action, words) in [
        ("0x1 (GPU Reset Required)", "reset-gpu", "then reset the GPU"),
        ("0x2 (Node Reboot Required)", "reboot-node", "then reboot this one"),
        ("0x2 (OS Reboot)", "reboot-node", "then reboot this one"),
        ("0x3 (Drain P2P)", "replace-node", "peer access"),
        ("0x4 (Drain and Reset)", "reset-gpu", "peer access"),
    ] {
        let lines = kernel_log(&[GSP, &request("0000:4f:00", "0x0 (None)", to)]);
        let case = only(&[("b7.kern.log", &lines)]);
        assert_eq!(
            (case.class.as_str(), case.action.as_str()),
            ("gpu-gsp-timeout", action),
            "{to}"
        );
        assert!(
            case.advice.contains(words) && case.advice.contains("XID 154"),
            "{to}: {}",
            case.advice
        );
        assert_eq!(case.recommended_by, ["nvidia-xid-catalog"]);
    }
}

#[test]
fn the_last_request_for_the_blamed_gpu_counts() {
    let raised = [
        GSP,
        &request("0000:4f:00", "0x0 (None)", "0x1 (GPU Reset Required)"),
        &request("0000:4f:00", "0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)"),
    ];
    assert_eq!(only(&[("b7.kern.log", &kernel_log(&raised))]).action, "reboot-node");
    let general = only(&[("b7.kern.log", &kernel_log(&[GSP]))]).advice;
    let withdrawn = [
        GSP,
        &request("0000:4f:00", "0x0 (None)", "0x2 (Node Reboot Required)"),
        &request("0000:4f:00", "0x2 (Node Reboot Required)", "0x0 (None)"),
    ];
    assert_eq!(only(&[("b7.kern.log", &kernel_log(&withdrawn))]).advice, general);
    let of_other = [GSP, &request("0000:9b:00", "0x0 (None)", "0x2 (Node Reboot Required)")];
    assert_eq!(only(&[("b7.kern.log", &kernel_log(&of_other))]).advice, general);
}

#[test]
fn a_row_that_cannot_be_replaced_condemns_the_board_at_once() {
    for lines in [
        kernel_log(&[DBE, REMAP_FAILED]),
        kernel_log(&[
            DBE,
            REMAP_FAILED,
            &request("0000:4f:00", "0x0 (None)", "0x1 (GPU Reset Required)"),
        ]),
    ] {
        let case = only(&[("b7.kern.log", &lines)]);
        assert_eq!(case.class, "gpu-ecc-uncorrectable");
        assert!(case.advice.contains("field diagnostic"), "{}", case.advice);
        assert!(!case.advice.contains("if it comes again"), "{}", case.advice);
    }
    // The row of another GPU.
    let other = REMAP_FAILED.replace("4f", "9b");
    let cases = diagnose(&[("b7.kern.log", &kernel_log(&[DBE, &other]))]);
    let memory = cases.iter().find(|case| case.class == "gpu-ecc-uncorrectable").unwrap();
    assert!(memory.advice.contains("if it comes again"), "{}", memory.advice);
}

#[test]
fn a_kill_by_an_unknown_sender_asks_for_no_more_memory() {
    let launcher = "E1127 10:00:04.302000 800 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) \
                    local_rank: 1 (pid: 811) of binary: /opt/venv/bin/python3\n";
    let case = only(&[("torchrun.log", launcher)]);
    assert_eq!(case.action, "diagnose", "{}", case.advice);
    assert!(!case.advice.contains("more memory"), "{}", case.advice);
    assert!(says(&case, "nothing says by whom"), "{:?}", case.reasoning);
    let kernel = kernel_log(&["Out of memory: Killed process 811 (python3) total-vm:900000kB, anon-rss:800000kB"]);
    let known = only(&[("b7.kern.log", &kernel)]);
    assert_eq!(
        (known.class.as_str(), known.action.as_str()),
        ("host-oom-kill", "resize-request")
    );
}

#[test]
fn corrected_errors_of_the_link_to_the_processor_are_no_failure() {
    let corrected =
        "NVRM: Xid (PCI:0009:01:00): 121, pid='<unknown>', name=<unknown>, C2C Link corrected error on link 3";
    assert!(diagnose(&[("b7.kern.log", &kernel_log(&[corrected]))]).is_empty());
    // The fatal error of the same link.
    let fatal = "NVRM: Xid (PCI:0009:01:00): 173, pid='<unknown>', name=<unknown>, C2C fatal link error";
    assert_eq!(
        only(&[("b7.kern.log", &kernel_log(&[fatal]))]).class,
        "gpu-nvlink-error"
    );
}

#[test]
fn a_daemon_in_the_system_log_is_the_writer_of_its_lines() {
    let line = |text: &str| format!("May  2 08:00:05 b7 {text}\n");
    for text in [
        "ipmievd: Power Supply sensor PSU2 Failure detected - Asserted",
        "ipmievd[812]: Power Supply sensor PSU2 Failure detected - Asserted",
    ] {
        let case = only(&[("b7/syslog", &line(text))]);
        assert!(
            says(&case, "ipmievd in the system log of node b7 says"),
            "{:?}",
            case.reasoning
        );
    }
    let case = only(&[("b7/syslog", &line(&format!("kernel: {GSP}")))]);
    assert!(says(&case, "the kernel log of node b7 says"), "{:?}", case.reasoning);
}

#[test]
fn a_path_that_came_up_again_is_no_failure() {
    let failed = "2026-05-02T08:00:05+00:00 b7 kernel: sd 3:0:0:1: [sdc] tag#11 FAILED Result: \
                  hostbyte=DID_TRANSPORT_DISRUPTED driverbyte=DRIVER_OK cmd_age=5s\n";
    let failing = "2026-05-02T08:00:05+00:00 b7 kernel: device-mapper: multipath: 253:2: Failing path 8:32.\n";
    let multipathd = |text: &str| format!("2026-05-02T08:00:25+00:00 b7 multipathd[811]: {text}\n");
    let rank =
        "2026-05-02 07:59:00,000 INFO rank 1 step 7 loss 2.1\n2026-05-02 08:03:00,000 INFO rank 1 step 9 loss 2.0\n";
    let ups = [
        multipathd("mpatha: sdc - tur checker reports path is up"),
        multipathd("sdc: tur checker reports path is up"),
        multipathd("8:32: reinstated"),
        "2026-05-02T08:00:25+00:00 b7 kernel: device-mapper: multipath: 253:2: Reinstating path 8:32.\n".to_owned(),
    ];
    for up in &ups {
        for down in [failed.to_owned(), failing.to_owned(), format!("{failed}{failing}")] {
            let found = group(&[("b7/syslog", &format!("{down}{up}")), ("b7/rank-1.log", rank)]);
            assert!(found.cases.is_empty(), "{down}{up}");
        }
    }
    // Another path, an error of the disk itself, or no path at all.
    let others = [
        format!("{failed}{}", multipathd("mpatha: sdd - tur checker reports path is up")),
        format!(
            "{}{}",
            failed.replace("DID_TRANSPORT_DISRUPTED", "DID_BAD_TARGET"),
            ups[0]
        ),
        format!("{failed}{}{}", multipathd("mpatha: remaining active paths: 0"), ups[0]),
        format!("{}{failed}", ups[0]),
    ];
    let rank = "2026-05-02 07:59:00,000 INFO rank 1 step 7 loss 2.1\n";
    for other in &others {
        let case = only(&[("b7/syslog", other), ("b7/rank-1.log", rank)]);
        assert_eq!(case.class, "storage-io-error", "{other}");
    }
}

#[test]
fn a_node_whose_processes_do_not_end_ended_no_run_that_ended_well() {
    let done = "2026-11-27 09:59:00,000 INFO rank 0: step 9 loss 2.0\n2026-11-27 09:59:58,000 INFO Training completed successfully\n";
    let scheduler = "[2026-11-27T10:00:00.000] _job_complete: JobId=12 done\n[2026-11-27T10:01:00.000] error: slurmd error running \
                     JobId=12 on node(s)=n3: Kill task failed\n";
    let found = group(&[("slurm-12.out", done), ("slurmctld.log", scheduler)]);
    assert!(found.cases.is_empty(), "{:#?}", found.cases);
    let case = only(&[("slurmctld.log", scheduler)]);
    assert_eq!((case.class.as_str(), case.blamed.as_str()), ("hung-task", "node n3"));
}

#[test]
fn a_failed_prolog_blames_its_node() {
    let failure = "[2026-11-27T10:00:00.000] error: Prolog launch failure, JobId=13\n";
    let node = "[2026-11-27T10:00:00.100] error: slurmd error running JobId=13 on node(s)=n9: Prolog error\n";
    let rest = "[2026-11-27T10:00:00.200] drain_nodes: node n9 state set to DRAIN\n[2026-11-27T10:00:00.300] Requeuing JobId=13\n";
    for text in [format!("{node}{rest}"), format!("{failure}{node}{rest}")] {
        let case = only(&[("slurmctld.log", &text)]);
        assert_eq!(
            (case.class.as_str(), case.blamed.as_str()),
            ("slurm-node-fail", "node n9"),
            "{text}"
        );
    }
}

#[test]
fn a_reset_of_a_gaudi_device_is_the_cause_of_the_error_of_its_rank() {
    let rank = "2026-05-02 08:00:00,000 INFO rank 2 step 7\n2026-05-02 08:00:03,100 ERROR rank 2: RuntimeError: synStatus=26 \
                [Generic failure] Device acquire failed.\n";
    for heartbeat in [
        "Device heartbeat failed!",
        "Device heartbeat failed! PCI link is broken",
    ] {
        for driver in ["habanalabs", "accel"] {
            let device = |text: &str| format!("{driver} 0000:b3:00.0: {text}");
            let kernel = kernel_log(&[
                &device(heartbeat),
                &device("Going to reset device"),
                &device("Killing user process pid=4242"),
                &device("Successfully finished resetting the 0000:b3:00.0 device"),
            ]);
            let case = only(&[("b7/dmesg.log", &kernel), ("b7/rank-2.log", rank)]);
            assert_eq!(
                (case.class.as_str(), case.blamed.as_str(), case.root_rank),
                ("gpu-internal-fault", "gpu 0000:b3:00 of node b7", Some(Rank(2))),
                "{heartbeat}"
            );
        }
    }
    // Without a fault of the device.
    let case = only(&[("b7/rank-2.log", rank)]);
    assert_eq!(case.class, "cuda-launch-failure");
    assert!(!case.advice.contains("Look for an XID"), "{}", case.advice);
}

#[test]
fn the_folder_of_a_board_log_names_its_machine() {
    let board = "1 | 05/02/2026 | 08:00:05 | Watchdog2 #0xca | Hard reset | Asserted\n";
    let rank = "2026-05-02 08:00:00,000 INFO rank 0 step 7\n2026-05-02 08:00:06,100 ERROR rank 0: RuntimeError: \
                [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:41211\n";
    let case = only(&[("tcn4/sel.log", board), ("tcn1/rank-0.log", rank)]);
    assert_eq!((case.class.as_str(), case.blamed.as_str()), ("node-crash", "node tcn4"));
}

#[test]
fn devices_that_are_not_usable_and_errors_of_their_library_are_failures() {
    let kernel = kernel_log(&[
        "habanalabs hl2: Failed to communicate with Device CPU (CPU-CP timeout)",
        "habanalabs 0000:1a:00.0: Failed to initialize hl2. Device is NOT usable !",
    ]);
    let case = only(&[("b7/dmesg.log", &kernel)]);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        ("gpu-internal-fault", "gpu 0000:1a:00 of node b7")
    );
    let rank =
        "HCCL error: In function initDevice(): synDeviceAcquire(&handle, nullptr) failed with synapse error: 26\n";
    assert_eq!(only(&[("rank-0.log", rank)]).class, "cuda-launch-failure");
}

#[test]
fn a_preemption_service_that_is_not_configured_preempts_nothing() {
    let raised = "2026-05-02 08:00:00,000 INFO step 7\nTraceback (most recent call last):\n  File \"train.py\", line 9, in \
                  <module>\n    manager.save(step, args)\nRuntimeError: Preemption sync manager has not been initialized. \
                  Make sure the 'jax_enable_preemption_service' config is enabled.\n";
    assert_ne!(only(&[("rank-0.log", raised)]).class, "preempted");
    let preempted = "slurmstepd: error: *** JOB 4242 ON n12 CANCELLED AT 2026-05-02T08:00:05 DUE TO PREEMPTION ***\n";
    assert_eq!(only(&[("slurm.out", preempted)]).class, "preempted");
}

#[test]
fn a_controller_of_slurm_that_refuses_its_configuration_states_that() {
    let fatal = "Feb 24 09:21:38 ctl slurmctld[26180]: fatal: Duplicated NodeHostName hpc-0 in config file\n";
    assert_eq!(only(&[("slurmctld.log", fatal)]).class, "scheduler-misconfigured");
}
