//! Complaints that a log shows as overcome: reported long ago, corrected, waited for, or written after the peer had
//! ended.

use rankguard_offline::OfflineCase;

use crate::common::{case, named, stream};

fn of(kind: &str, text: &str) -> OfflineCase {
    case(vec![stream(kind, None, text)])
}

#[test]
fn what_kubernetes_has_not_told_again_came_about() {
    let told = |age: &str| {
        let event = format!(
            "  Warning  FailedScheduling  {age}  default-scheduler  pod has unbound immediate PersistentVolumeClaims"
        );
        of("scheduler", &event).class
    };
    assert_eq!(told("18m (x2 over 19m)"), "none");
    assert_eq!(told("2d3h (x9 over 2d4h)"), "none");
    assert_ne!(told("90s (x12 over 13m)"), "none");
    // Reported once, and perhaps never tried again.
    assert_ne!(told("18m"), "none");
    // The kubelet suppresses most repeats.
    let pull = "  Warning  Failed  43m (x4 over 45m)  kubelet  Error: ErrImagePull";
    assert_eq!(named(&of("scheduler", pull)), ("k8s-image-pull", "platform"));
}

#[test]
fn containers_that_were_made_had_their_volumes() {
    let waited = "  Warning  FailedMount  29m  kubelet  MountVolume.SetUp failed for volume \"data\" : mount failed: exit status 32";
    let made = format!("{waited}\n  Normal   Created      27m  kubelet  Created container trainer");
    assert_eq!(of("scheduler", waited).class, "k8s-volume-unbound");
    assert_eq!(of("scheduler", &made).class, "none");
    let others = made.replace("Created container trainer", "pod/other-1  Created container trainer");
    assert_eq!(of("scheduler", &others).class, "k8s-volume-unbound");
}

#[test]
fn a_pod_that_runs_has_its_sandbox() {
    let failed = "  Warning  FailedCreatePodSandBox  3m57s  kubelet  Failed to create pod sandbox: open /run/systemd/resolve/resolv.conf: no such file or directory";
    let made = "  Normal   Started  3m42s  kubelet  Started container etcd";
    assert_eq!(of("scheduler", failed).class, "container-runtime-error");
    assert_eq!(of("scheduler", &format!("{failed}\n{made}")).class, "none");
    assert_eq!(
        of("scheduler", &format!("{made}\n{failed}")).class,
        "container-runtime-error"
    );
}

#[test]
fn who_talks_to_somebody_who_left_has_not_failed() {
    let raised = |frames: &[&str], exception: &str| {
        let frames: Vec<String> = frames
            .iter()
            .map(|frame| {
                let (file, function) = frame.split_once(' ').expect("a file and a function");
                format!("  File \"/env/lib/python3.9/{file}\", line 7, in {function}\n    talk()")
            })
            .collect();
        let text = format!("Traceback (most recent call last):\n{}\n{exception}", frames.join("\n"));
        of("rank-stderr", &text).class
    };
    let feeder = ["multiprocessing/queues.py _feed", "multiprocessing/connection.py close"];
    assert_eq!(raised(&feeder, "OSError: [Errno 9] Bad file descriptor"), "none");
    assert_ne!(raised(&feeder, "OSError: [Errno 24] Too many open files"), "none");
    let pool = ["multiprocessing/pool.py worker", "multiprocessing/queues.py put"];
    assert_eq!(raised(&pool, "BrokenPipeError: [Errno 32] Broken pipe"), "none");
    let sharer = "multiprocessing/resource_sharer.py get_connection";
    let worker = ["multiprocessing/process.py _bootstrap", sharer];
    assert_eq!(
        raised(&worker, "ConnectionRefusedError: [Errno 111] Connection refused"),
        "none"
    );
    // A trainer that requests data from a worker lacks its input.
    assert_ne!(
        raised(&[sharer], "ConnectionRefusedError: [Errno 111] Connection refused"),
        "none"
    );
    let pins = [
        "torch/utils/data/_utils/pin_memory.py _pin_memory_loop",
        "multiprocessing/queues.py get",
    ];
    assert_eq!(
        raised(&pins, "ConnectionResetError: [Errno 104] Connection reset by peer"),
        "none"
    );
    assert_ne!(raised(&pins, "RuntimeError: CUDA error: out of memory"), "none");
    let listener = ["logging/handlers.py _monitor", "multiprocessing/queues.py get"];
    assert_eq!(raised(&listener, "EOFError"), "none");
    assert_ne!(raised(&listener, "MemoryError"), "none");
    // Finalizers run one by one; their exceptions are printed and ignored.
    let finalizer = ["multiprocessing/util.py _run_finalizers", "shutil.py rmtree"];
    assert_eq!(
        raised(&finalizer, "OSError: [Errno 16] Device or resource busy: '.nfs8b24'"),
        "none"
    );
    let tracker = [
        "threading.py _bootstrap_inner",
        "site-packages/wandb/sdk/internal/file_stream.py _send",
    ];
    assert_eq!(
        raised(&tracker, "requests.exceptions.HTTPError: 500 Server Error"),
        "none"
    );
}

#[test]
fn what_the_firmware_corrected_is_no_fault_under_any_of_its_lines() {
    let told = |second: &str| {
        let text = format!(
            "[1.0] {{35}}[Hardware Error]: {second}\n[1.1] {{35}}[Hardware Error]:   section_type: memory error"
        );
        of("kmsg", &text).class
    };
    assert_eq!(
        told("It has been corrected by h/w and requires no further action"),
        "none"
    );
    assert_eq!(told("event severity: fatal"), "host-memory-fault");
    // A corrected error does not excuse a later one, under another number or, after a restart, under the same.
    let corrected =
        "[1.0] {1}[Hardware Error]: event severity: corrected\n[1.1] {1}[Hardware Error]:   section_type: memory error";
    let work: Vec<String> = (0..60)
        .map(|line| format!("[{line}.5] usb 1-1: new device {line}"))
        .collect();
    for number in [1, 2] {
        let fatal = format!(
            "[70.0] {{{number}}}[Hardware Error]: event severity: fatal\n[70.1] {{{number}}}[Hardware Error]:   section_type: memory error"
        );
        let text = format!("{corrected}\n{}\n{fatal}", work.join("\n"));
        assert_eq!(of("kmsg", &text).class, "host-memory-fault", "{number}");
    }
}

#[test]
fn what_a_kernel_misses_is_no_file_of_the_users() {
    let text = "init: Failed to spawn amd-config main process: unable to execute: No such file or directory";
    assert_eq!(of("kmsg", text).class, "none");
    assert_eq!(of("kmsg", "PM: Image not found (code -22)").class, "none");
    assert_eq!(of("launcher", text).class, "file-not-found");
}

#[test]
fn a_machine_check_is_what_its_record_says() {
    let record = |severity: &str| {
        let text = format!("mcelog: Hardware event. This is not a software error.\nmcelog: MCE 15\nmcelog: {severity}");
        of("kmsg", &text).class
    };
    assert_eq!(record("Corrected error"), "none");
    assert_eq!(record("Uncorrected error"), "cpu-hardware-error");
    let often = "Corrected error\nmcelog: Threshold based error status: yellow";
    assert_eq!(record(often), "cpu-hardware-error");
    let amd = |severity: &str| {
        let text = format!(
            "[1.0] mce: [Hardware Error]: Machine check events logged\n[1.1] [Hardware Error]: {severity}\n[1.2] [Hardware Error]: Load Store Unit Ext. Error Code: 6"
        );
        of("kmsg", &text).class
    };
    let status =
        |bits: &str| format!("\n[1.2] [Hardware Error]: CPU:1 (19:18:1) MC17_STATUS[Over|{bits}|MiscV]: 0xd820");
    assert_eq!(
        amd(&format!("Corrected error, no action required.{}", status("CE"))),
        "none"
    );
    let uncorrected = format!("Uncorrected, software restartable error.{}", status("UE"));
    assert_eq!(amd(&uncorrected), "cpu-hardware-error");
    // The lines after the announcement show that it was the memory.
    let announced = "[1.0] mce: [Hardware Error]: Machine check events logged";
    let memory = "[1.1] EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0 page:0x0)";
    assert_eq!(of("kmsg", announced).class, "cpu-hardware-error");
    let both: Vec<String> = (0..4).map(|_| format!("{announced}\n{memory}")).collect();
    assert_eq!(of("kmsg", &both.join("\n")).class, "host-memory-corrected-errors");
}

#[test]
fn what_a_trainer_leaves_out_has_not_stopped_it() {
    let unread = "video_reader.cc:83: ERROR opening: /data/v.mp4, Invalid data found when processing input";
    let bar = |step: usize| format!("89%|████████▉ | {step}/5979 [15:40:54<2:01:44, 10.87s/it]");
    assert_eq!(
        of("rank-stderr", &format!("{}\n{unread}", bar(5307))).class,
        "data-corrupt"
    );
    assert_eq!(
        of("rank-stderr", &format!("{}\n{unread}\n{}", bar(5307), bar(5308))).class,
        "none"
    );
}

#[test]
fn a_trial_that_diverged_is_what_a_study_is_for() {
    let diverged = "  Trial  1 | lr=7.1145e-03 | val_loss=nan";
    let next = "[I 2026-04-27 17:37:20,441] Trial 2 finished with value: 2.4012 and parameters: {'lr': 0.0015}.";
    assert_eq!(of("rank-stderr", diverged).class, "loss-nan");
    assert_eq!(of("rank-stderr", &format!("{diverged}\n{next}")).class, "none");
}

#[test]
fn gpus_that_were_hidden_on_purpose_are_not_missed() {
    let none = "cuda_diagnostics.cc:156] kernel driver does not appear to be running on this host (n1)";
    let hidden = "cuda_diagnostics.cc:163] CUDA_VISIBLE_DEVICES is set to -1 - this hides all GPUs from CUDA";
    assert_eq!(of("rank-stderr", none).class, "gpu-not-visible");
    assert_eq!(of("rank-stderr", &format!("{none}\n{hidden}")).class, "none");
    let empty = hidden.replace("-1", "an empty string");
    assert_eq!(of("rank-stderr", &format!("{none}\n{empty}")).class, "gpu-not-visible");
}

#[test]
fn a_fabric_manager_without_switches_has_nothing_to_do() {
    let ends = "Sep 18 03:19:01 n1 nvidia-fabricmanager-start.sh[4753]: \"/usr/bin/nv-fabricmanager -c fabricmanager.cfg\" failed! Exit code: 1\nSep 18 03:19:01 n1 systemd[1]: nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE";
    let nothing = "Sep 18 03:19:01 n1 nvidia-fabricmanager-start.sh[4756]: request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]";
    assert_eq!(of("kmsg", ends).class, "fabric-manager-not-ready");
    assert_eq!(of("kmsg", &format!("{nothing}\n{ends}")).class, "none");
    let gpud = "✔ NVSwitch not detected, skipping fabric manager check\nfabric manager is not active";
    assert_eq!(of("agent-event", gpud).class, "none");
    // If switches were expected, their users report them missing.
    let expected = "cudaGetDeviceCount returned error 802: system not yet initialized";
    let class = of("kmsg", &format!("{nothing}\n{ends}\n{expected}")).class;
    assert_eq!(class, "fabric-manager-not-ready");
}

#[test]
fn who_is_killed_after_the_step_was_aborted_is_killed_by_slurm() {
    let killed = "srun: error: n1: tasks 0-35: Killed";
    let aborted = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.";
    let trace = "KeyError: 'ecutrho'";
    let of = |lines: [&str; 3]| of("scheduler", &lines.join("\n")).class;
    assert_eq!(of([trace, aborted, killed]), "key-error");
    assert_eq!(of([aborted, "step 1 loss 2.0", killed]), "killed-by-signal");
    // A task was killed first, and Slurm ended the others for it.
    assert_eq!(of(["step 1 loss 2.0", killed, aborted]), "killed-by-signal");
}

#[test]
fn an_image_that_was_pulled_in_the_end_had_a_slow_registry() {
    let failed = "  Warning  Failed  101s (x3 over 2m57s)  kubelet  Failed to pull image \"trainer\": rpc error: code = Unknown desc = Get https://registry.example.org/v2/: dial tcp: no route to host";
    let pulled = "  Normal  Pulled  24s  kubelet  Successfully pulled image \"trainer\" in 24.2s";
    assert_ne!(of("scheduler", failed).class, "none");
    assert_eq!(of("scheduler", &format!("{failed}\n{pulled}")).class, "none");
    assert_ne!(of("scheduler", &format!("{pulled}\n{failed}")).class, "none");
    // One of the two containers of a pod has its image.
    let other = pulled.replace("trainer", "sidecar");
    assert_ne!(of("scheduler", &format!("{failed}\n{other}")).class, "none");
}

#[test]
fn a_pod_for_which_a_node_is_made_waits() {
    let failed =
        "  Warning  FailedScheduling  2m  default-scheduler  0/7 nodes are available: 7 Insufficient nvidia.com/gpu.";
    let scales =
        "  Normal  TriggeredScaleUp  1m  cluster-autoscaler  pod triggered scale-up: [{gpu-pool 1->2 (max: 8)}]";
    assert_eq!(of("scheduler", &format!("{failed}\n{scales}")).class, "none");
    assert_eq!(
        of("scheduler", &format!("{scales}\n{failed}")).class,
        "k8s-unschedulable"
    );
}

#[test]
fn who_ends_a_job_that_is_done_ends_nothing() {
    let kill = "[2022-06-01T10:01:41.298] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=42812 uid 5001";
    let done = |job: u32| format!("[2022-06-01T10:01:40.298] _job_complete: JobId={job} done\n{kill}");
    assert_eq!(of("scheduler", kill).class, "job-cancelled");
    assert_eq!(of("scheduler", &done(42_812)).class, "none");
    assert_eq!(of("scheduler", &done(42_813)).class, "job-cancelled");
}

#[test]
fn batch_sizes_that_were_tried_until_memory_was_full_fit_in_the_end() {
    let full = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 22.03 GiB of which 15.12 MiB is free.";
    let found = "AutoBatch: Using batch-size 15 for CUDA:0 12.59G/22.03G (57%)";
    assert_eq!(of("rank-stderr", full).class, "cuda-oom");
    assert_eq!(of("rank-stderr", &format!("{full}\n{found}")).class, "none");
    assert_eq!(of("rank-stderr", &format!("{found}\n{full}")).class, "cuda-oom");
}

#[test]
fn a_dashboard_takes_another_port() {
    let taken = "Port 8787 is already in use.";
    assert_eq!(of("launcher", taken).class, "port-in-use");
    let moved = format!("{taken}\nHosting the diagnostics dashboard on a random port instead.");
    assert_eq!(of("launcher", &moved).class, "none");
}

#[test]
fn a_daemon_that_only_jobs_over_nodes_need_fails_nothing_alone() {
    let idle = "ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 IMEX daemon status is -3 (not READY)";
    assert_eq!(of("agent-event", idle).class, "none");
}

#[test]
fn the_answer_of_another_server_ends_no_wait() {
    let log = |server: &str| {
        format!(
            "[Wed Apr 10 17:58:24 2024] nfs: server 192.168.0.1 not responding, still trying\n[Wed Apr 10 17:58:39 2024] nfs: server \
             {server} OK\n"
        )
    };
    let classes = |server: &str| -> Vec<String> {
        let cases = crate::folders::diagnose(&[("dmesg", &log(server))]);
        cases.into_iter().map(|case| case.class).collect()
    };
    assert_eq!(classes("192.168.0.1"), Vec::<String>::new());
    assert_eq!(classes("192.168.0.2"), ["filesystem-hang"]);
}

#[test]
fn reports_of_machines_that_are_over_are_noted_with_the_reason() {
    let corrected = "[ 2484.374025] {359}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 512\n[ 2484.374028] \
                     {359}[Hardware Error]: It has been corrected by h/w and requires no further action\n[ 2484.374029] \
                     {359}[Hardware Error]: event severity: corrected\n[ 2484.374030] {359}[Hardware Error]:  Error 0, type: \
                     corrected\n[ 2484.374031] {359}[Hardware Error]:   section_type: PCIe error\n";
    let files = "[Wed Apr 10 17:58:24 2024] nfs: server 192.168.0.1 not responding, still trying\n[Wed Apr 10 17:58:39 2024] nfs: \
                 server 192.168.0.1 OK\n";
    let switches = "Sep 18 03:19:01 n1 nvidia-fabricmanager-start.sh[4753]: Detected Pre-NVL5 system\nSep 18 03:19:01 n1 \
                    nvidia-fabricmanager-start.sh[4756]: request to query NVSwitch device information from NVSwitch driver failed \
                    with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\nSep 18 03:19:01 n1 systemd[1]: \
                    nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE\n";
    for (name, log, reason) in [
        ("kern.log", corrected, "the hardware corrected the error"),
        ("dmesg", files, "the file system answered again"),
        ("syslog", switches, "the machine has no NVSwitch"),
    ] {
        let found = crate::folders::group(&[(name, log)]);
        assert!(found.cases.is_empty(), "{name}: {:?}", found.cases);
        let notes: Vec<String> = found.reports.iter().map(ToString::to_string).collect();
        assert!(notes.len() == 1 && notes[0].contains(reason), "{name}: {notes:?}");
    }
}
