#![allow(clippy::unwrap_used)]

use super::*;
use rankguard_model::{ClassId, Device, DeviceKind, Rank, Role};

fn read(source: EvidenceSource, lines: &[&str]) -> Vec<LogObservation> {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(source));
    let mut out = Vec::new();
    for line in lines {
        out.extend(triage.push(line, Timestamp(0)));
    }
    out.extend(triage.flush());
    out
}

fn classes(observations: &[LogObservation]) -> Vec<&str> {
    observations.iter().map(|o| o.marks[0].class.as_str()).collect()
}

const LOST_GPU: [&str; 6] = [
    "4,10,1000000,-;NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "4,11,1000100,-;NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.",
    "4,12,1000200,-;NVRM: Xid (PCI:0000:9b:00): 45, pid=4242, name=python3, Ch 00000008",
    "4,13,1000300,-;NVRM: Xid (PCI:0000:9b:00): 45, pid=4242, name=python3, Ch 00000009",
    "4,14,1000400,-;NVRM: Xid (PCI:0000:9b:00): 45, pid=4242, name=python3, Ch 0000000a",
    "4,15,1000500,-;NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
];

#[test]
fn a_lost_gpu_is_one_root_and_its_burst_one_cascade() {
    // RG-7
    let seen = read(EvidenceSource::KernelLog, &LOST_GPU);
    assert_eq!(
        classes(&seen),
        ["gpu-fallen-off-bus", "gpu-engine-exception", "gpu-recovery-action"]
    );
    assert_eq!(seen[0].repeats, 2);
    assert_eq!(seen[0].marks[0].role, Role::Root);
    assert_eq!(
        seen[0].device,
        Some(Device {
            kind: DeviceKind::Gpu,
            address: "0000:9b:00".to_owned()
        })
    );
    assert_eq!((seen[1].repeats, seen[1].marks[0].role), (3, Role::Cascade));
    assert_eq!(seen[0].since_boot_us, Some(1_000_000));
}

#[test]
fn a_channel_reset_after_another_event_is_a_cascade_and_alone_a_root() {
    // RG-7
    let reset = "NVRM: Xid (PCI:0000:1b:00): 43, pid=7, name=python3, Ch 00000008";
    let page_fault = "NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=python3, MMU Fault";
    let alone = read(EvidenceSource::KernelLog, &[reset]);
    assert_eq!(alone[0].marks[0].role, Role::Root);
    let after = read(EvidenceSource::KernelLog, &[page_fault, reset]);
    assert_eq!(
        (after[0].marks[0].role, after[1].marks[0].role),
        (Role::Root, Role::Cascade)
    );
    let elsewhere = read(EvidenceSource::KernelLog, &[&page_fault.replace("1b", "2b"), reset]);
    assert_eq!(elsewhere[1].marks[0].role, Role::Root);
}

#[test]
fn a_memory_error_is_no_consequence_of_a_gpu_that_was_lost_before() {
    let lost = "NVRM: Xid (PCI:0000:9b:00): 79, pid=0, GPU has fallen off the bus.";
    for (xid, expected) in [(48, Role::Root), (95, Role::Root), (119, Role::Cascade)] {
        let later = format!("NVRM: Xid (PCI:0000:9b:00): {xid}, pid=4310, name=work, message of the driver");
        let seen = read(EvidenceSource::KernelLog, &[lost, &later]);
        let mark = seen.last().and_then(|one| one.marks.first()).expect("classified");
        assert_eq!(mark.role, expected, "{xid}");
    }
}

#[test]
fn a_link_error_long_after_the_loss_of_a_gpu_shows_that_it_has_returned() {
    for (at, expected) in [("102.5", Role::Cascade), ("130.0", Role::Root)] {
        let lost = "[  100.000000] NVRM: Xid (PCI:0000:9b:00): 79, pid=0, GPU has fallen off the bus.";
        let later =
            format!("[  {at}00000] NVRM: Xid (PCI:0000:9b:00): 74, pid=0, NVLink: fatal error detected on link 3");
        let seen = read(EvidenceSource::KernelLog, &[lost, &later]);
        let mark = seen.last().and_then(|one| one.marks.first()).expect("classified");
        assert_eq!(mark.role, expected, "{at}");
    }
}

#[test]
fn the_three_line_form_of_a_lost_gpu_names_its_device() {
    let seen = read(
        EvidenceSource::KernelLog,
        &[
            "[   10.000001] NVRM: The NVIDIA GPU 0000:4e:00.0 (PCI ID: 10de:2330)",
            "[   10.000002] NVRM: installed in this system has",
            "[   10.000003] NVRM: fallen off the bus and is not responding to commands.",
        ],
    );
    assert_eq!(classes(&seen), ["gpu-fallen-off-bus"]);
    assert_eq!(seen[0].device.as_ref().unwrap().address, "0000:4e:00");
    assert_eq!(seen[0].context.len(), 2);
}

#[test]
fn an_unknown_number_keeps_its_name() {
    // RG-10
    let seen = read(
        EvidenceSource::KernelLog,
        &["NVRM: Xid (PCI:0000:1b:00): 199, pid=7, name=python3, new thing"],
    );
    assert_eq!(classes(&seen), ["unknown-xid-199"]);
    let seen = read(
        EvidenceSource::KernelLog,
        &["nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 31337, Fatal, Link 30 new thing"],
    );
    assert_eq!(classes(&seen), ["unknown-sxid-31337"]);
}

#[test]
fn switch_continuation_lines_do_not_count_twice() {
    let seen = read(
        EvidenceSource::KernelLog,
        &[
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000}",
        ],
    );
    assert_eq!(classes(&seen), ["nvswitch-error"]);
    assert_eq!((seen[0].repeats, seen[0].context.len()), (1, 2));
}

fn oom(constraint: &str, group: &str, scope: &str) -> Vec<LogObservation> {
    let middle = format!(
        "[  5.000003] oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={group},task_memcg={group},task=python3,pid=4242,uid=0"
    );
    let killed =
        format!("[  5.000004] {scope}: Killed process 4242 (python3) total-vm:9kB, anon-rss:61234567kB, file-rss:0kB");
    read(
        EvidenceSource::KernelLog,
        &[
            "[  5.000001] dataloader invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0",
            "[  5.000002] Mem-Info: many numbers",
            &middle,
            &killed,
            "[  5.000005] oom_reaper: reaped process 4242 (python3)",
        ],
    )
}

#[test]
fn the_lines_of_an_oom_kill_are_one_observation() {
    let seen = oom("CONSTRAINT_NONE", "/", "Out of memory");
    assert_eq!(classes(&seen), ["host-oom-kill"]);
    let fields = &seen[0].marks[0].fields;
    assert_eq!(
        (
            fields["pid"].as_str(),
            fields["process"].as_str(),
            fields["invoked_by"].as_str()
        ),
        ("4242", "python3", "dataloader")
    );
    assert_eq!(fields["anon_rss_kb"], "61234567");
    assert!(seen[0].text.contains("Killed process"));
    assert_eq!(seen[0].line_no, 1);
}

#[test]
fn a_container_limit_is_told_from_an_exhausted_host() {
    assert_eq!(
        classes(&oom(
            "CONSTRAINT_MEMCG",
            "/kubepods/pod1",
            "Memory cgroup out of memory"
        )),
        ["container-oom-kill"]
    );
    assert_eq!(
        classes(&oom(
            "CONSTRAINT_MEMCG",
            "/slurm/uid_0/job_7",
            "Memory cgroup out of memory"
        )),
        ["host-oom-kill"]
    );
}

#[test]
fn tracebacks_of_two_ranks_come_apart() {
    let seen = read(
        EvidenceSource::JobLog,
        &[
            "[rank0]: Traceback (most recent call last):",
            "[rank3]: Traceback (most recent call last):",
            "[rank0]:   File \"/job/train.py\", line 10, in <module>",
            "[rank3]:   File \"/job/train.py\", line 10, in <module>",
            "[rank0]:     main()",
            "[rank3]:     main()",
            "[rank3]:   File \"/job/model.py\", line 77, in forward",
            "[rank3]:     return self.head(x)",
            "[rank3]:   File \"/opt/lib/python3.11/site-packages/torch/nn/linear.py\", line 125, in forward",
            "[rank3]:     return F.linear(input, self.weight, self.bias)",
            "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
            "[rank3]: RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x128 and 256x10)",
        ],
    );
    assert_eq!(seen.len(), 2, "{seen:#?}");
    let shape = seen.iter().find(|o| o.rank == Some(Rank(3))).unwrap();
    let mark = &shape.marks[0];
    assert_eq!(mark.class, ClassId::from("tensor-shape-mismatch"));
    assert_eq!(mark.fields["exception"], "RuntimeError");
    assert_eq!(
        mark.fields["message"],
        "mat1 and mat2 shapes cannot be multiplied (64x128 and 256x10)"
    );
    assert_eq!(
        (mark.fields["file"].as_str(), mark.fields["line"].as_str()),
        ("/job/model.py", "77")
    );
    assert_eq!(mark.fields["function"], "forward");
    let survivor = seen.iter().find(|o| o.rank == Some(Rank(0))).unwrap();
    assert_eq!(survivor.marks[0].role, Role::Cascade);
}

#[test]
fn chained_exceptions_are_one_observation_with_their_cause() {
    let seen = read(
        EvidenceSource::JobLog,
        &[
            "Traceback (most recent call last):",
            "  File \"/job/data.py\", line 5, in load",
            "    return table[key]",
            "KeyError: 'weight'",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
            "  File \"/job/train.py\", line 9, in <module>",
            "    load()",
            "mylib.LoadFailure: no weight",
            "step 3 done",
        ],
    );
    assert_eq!(seen.len(), 1, "{seen:#?}");
    assert_eq!(seen[0].text, "mylib.LoadFailure: no weight");
    assert_eq!(seen[0].marks[0].fields["cause"], "KeyError: 'weight'");
    assert_eq!((seen[0].line_no, seen[0].last_line_no), (1, 11));
}

#[test]
fn a_message_of_several_lines_belongs_to_its_traceback() {
    let seen = read(
        EvidenceSource::JobLog,
        &[
            "Traceback (most recent call last):",
            "  File \"/job/train.py\", line 9, in <module>",
            "    model.load_state_dict(state)",
            "RuntimeError: Error(s) in loading state_dict for Net:",
            "\tsize mismatch for head.weight: copying a param with shape torch.Size([10]) from checkpoint",
            "next",
        ],
    );
    assert_eq!(classes(&seen), ["checkpoint-mismatch"]);
}

#[test]
fn a_traceback_without_indentation_is_read_too() {
    let seen = read(
        EvidenceSource::JobLog,
        &[
            "Traceback (most recent call last):",
            "File \"/job/train.py\", line 9, in <module>",
            "run()",
            "ValueError: odd thing",
        ],
    );
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].marks[0].fields["line"], "9");
}

#[test]
fn a_syntax_error_without_a_header_has_its_place() {
    let seen = read(
        EvidenceSource::JobLog,
        &[
            "  File \"/job/train.py\", line 3",
            "    def f(:",
            "          ^",
            "SyntaxError: invalid syntax",
        ],
    );
    assert_eq!(classes(&seen), ["python-syntax-error"]);
    assert_eq!(seen[0].marks[0].fields["line"], "3");
}

#[test]
fn a_traceback_that_is_cut_off_is_still_given() {
    let seen = read(
        EvidenceSource::JobLog,
        &[
            "Traceback (most recent call last):",
            "  File \"/job/train.py\", line 9, in f",
        ],
    );
    assert_eq!(classes(&seen), ["uncaught-exception"]);
}

#[test]
fn live_triage_gives_a_group_once_it_is_quiet() {
    // RG-9: a held observation has a deadline, and `deadline` returns it.
    let mut triage = Triage::new(
        SignatureMatcher::builtin(),
        StreamContext::new(EvidenceSource::KernelLog),
    );
    let at = |ms| Timestamp::from_millis(ms);
    assert_eq!(triage.deadline(), None);
    assert!(triage.push(LOST_GPU[0], at(0)).is_empty());
    assert!(triage.push(LOST_GPU[1], at(100)).is_empty());
    assert_eq!(triage.deadline(), Some(at(300)));
    assert!(triage.poll(at(299)).is_empty());
    let seen = triage.poll(at(300));
    assert_eq!(classes(&seen), ["gpu-fallen-off-bus"]);
    assert_eq!(seen[0].repeats, 2);
    assert_eq!(triage.deadline(), None);
}

#[test]
fn a_group_that_keeps_growing_is_given_after_two_seconds() {
    // RG-9
    let mut triage = Triage::new(
        SignatureMatcher::builtin(),
        StreamContext::new(EvidenceSource::KernelLog),
    );
    let mut given = Vec::new();
    for ms in (0..3_000).step_by(100) {
        given.extend(triage.push(LOST_GPU[2], Timestamp::from_millis(ms)));
    }
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].repeats + triage.flush()[0].repeats, 30);
}

#[test]
fn an_open_traceback_is_given_when_its_rank_falls_silent() {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
    let at = |ms| Timestamp::from_millis(ms);
    for line in [
        "Traceback (most recent call last):",
        "  File \"a.py\", line 1, in f",
        "KeyError: 'x'",
    ] {
        assert!(triage.push(line, at(0)).is_empty());
    }
    let deadline = triage.deadline().unwrap();
    assert_eq!(deadline, at(200));
    assert_eq!(classes(&triage.poll(deadline)), ["key-error"]);
}

#[test]
fn a_stream_of_one_rank_lends_its_rank() {
    let mut triage = Triage::new(
        SignatureMatcher::builtin(),
        StreamContext {
            rank: Some(Rank(5)),
            ..StreamContext::new(EvidenceSource::JobLog)
        },
    );
    triage.push("RuntimeError: CUDA error: device-side assert triggered", Timestamp(0));
    assert_eq!(triage.flush()[0].rank, Some(Rank(5)));
}

#[test]
fn colours_do_not_hide_a_failure() {
    let seen = read(
        EvidenceSource::JobLog,
        &["\u{1b}[31mtorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\u{1b}[0m"],
    );
    assert_eq!(classes(&seen), ["cuda-oom"]);
}

#[test]
fn ordinary_lines_give_nothing() {
    let seen = read(
        EvidenceSource::JobLog,
        &[
            "step 100 loss 2.31 lr 3e-4",
            "saved checkpoint",
            "epoch 3 took 12.1 s",
            "",
        ],
    );
    assert!(seen.is_empty(), "{seen:#?}");
}

#[test]
fn a_harmless_warning_is_marked_as_noise() {
    let seen = read(
        EvidenceSource::JobLog,
        &["Setting OMP_NUM_THREADS environment variable for each process to be 1 in default"],
    );
    assert_eq!(seen[0].marks[0].role, Role::Noise);
}

#[test]
fn more_groups_than_the_bound_are_given_early_and_none_is_lost() {
    let mut triage = Triage::new(
        SignatureMatcher::builtin(),
        StreamContext::new(EvidenceSource::KernelLog),
    );
    let mut given = 0;
    for pid in 0..PENDING + 10 {
        let line = format!("Out of memory: Killed process {} (python3) total-vm:1kB", pid + 1);
        given += triage.push(&line, Timestamp(0)).len();
    }
    assert_eq!(given, 10);
    assert_eq!(given + triage.flush().len(), PENDING + 10);
}

#[test]
fn a_dump_that_lost_its_end_does_not_swallow_the_next() {
    let seen = read(
        EvidenceSource::KernelLog,
        &[
            "[  5.000001] a invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0",
            "[  500.000001] Out of memory: Killed process 77, UID 48, (b)",
        ],
    );
    assert_eq!(seen.len(), 2);
    assert!(!seen[1].marks[0].fields.contains_key("invoked_by"));
    assert_eq!(seen[1].marks[0].fields["process"], "b");
}

#[test]
fn an_exception_group_is_one_observation_and_tells_what_it_holds() {
    let seen = read(
        EvidenceSource::JobLog,
        &[
            "[rank2]:   + Exception Group Traceback (most recent call last):",
            "[rank2]:   |   File \"/job/load.py\", line 9, in <module>",
            "[rank2]:   |     asyncio.run(main())",
            "[rank2]:   | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)",
            "[rank2]:   +-+---------------- 1 ----------------",
            "[rank2]:     | Traceback (most recent call last):",
            "[rank2]:     |   File \"/job/load.py\", line 4, in fetch",
            "[rank2]:     |     raise OSError(28, 'No space left on device')",
            "[rank2]:     | OSError: [Errno 28] No space left on device",
            "[rank2]:     +---------------- 2 ----------------",
            "[rank2]:     | ValueError: second",
            "[rank2]:     +------------------------------------",
            "[rank2]: step 3",
        ],
    );
    assert_eq!(classes(&seen), ["disk-full"], "{seen:#?}");
    assert_eq!(
        seen[0].marks[0].fields["cause"],
        "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)"
    );
    assert_eq!((seen[0].line_no, seen[0].last_line_no), (1, 12));
}

#[test]
fn another_catalogue_leaves_what_is_open_open() {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
    let given = |triage: &mut Triage, line: &str| triage.push(line, Timestamp(0)).len();
    let mut seen = given(
        &mut triage,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    );
    for line in [
        "[rank3]: Traceback (most recent call last):",
        "[rank3]:   File \"a.py\", line 1, in f",
    ] {
        seen += given(&mut triage, line);
    }
    triage.push_block(b"[rank3]: KeyErr", Timestamp(0));
    triage.reload(Arc::new(SignatureMatcher::new(crate::Catalogue::builtin())));
    triage.push_block(b"or: 'x'\n", Timestamp(0));
    let held = triage.flush();
    assert_eq!(seen, 0);
    assert_eq!(classes(&held), ["cuda-oom", "key-error"]);
    assert_eq!(held[1].marks[0].fields["file"], "a.py");
}

#[test]
fn a_rank_that_fell_silent_in_the_middle_does_not_hold_up_the_rest() {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
    triage.push("[rank3]: Traceback (most recent call last):", Timestamp(0));
    for _ in 0..QUIET_LINES + 2 {
        triage.push("[rank4]: all is well", Timestamp(0));
    }
    assert!(triage.lanes.is_empty());
    assert_eq!(triage.flush().len(), 1);
}

/// Returns text and class of the last observation of some lines of a job.
fn last(lines: &str) -> (String, String) {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
    let mut all: Vec<LogObservation> = lines.lines().flat_map(|line| triage.push(line, Timestamp(0))).collect();
    all.extend(triage.flush());
    let last = all.pop().unwrap();
    (last.text, last.marks[0].class.to_string())
}

#[test]
fn a_traceback_that_is_indented_as_a_whole_is_read_as_one() {
    let lines = "     Traceback (most recent call last):\n       File \"main.py\", line 4, in <module>\n         labels = table['emotion']\n     KeyError: 'emotion'";
    assert_eq!(last(lines), ("KeyError: 'emotion'".to_owned(), "key-error".to_owned()));
}

#[test]
fn a_traceback_behind_the_prefix_of_a_collector_is_read_as_one() {
    let traceback = "Traceback (most recent call last):\n  File \"train.py\", line 4, in save\n    file.write(state)\nOSError: [Errno 28] No space left on device";
    let full = (
        "OSError: [Errno 28] No space left on device".to_owned(),
        "disk-full".to_owned(),
    );
    for prefix in [
        "2023-04-29 06:01:12.977 [177/train/578 (pid 28936)] ",
        "2023-04-29 06:01:12.977 [177/train/578 (pid 28936)] [09c561ee-a44c-4795-967c-7183a83b3160] ",
        "[2023-04-29, 06:01:12 UTC] {subprocess.py:93} INFO - ",
        "[2023-04-29T06:01:12.123+0000] {logging_mixin.py:188} INFO - ",
        "[1,mpirank:0,algo-1]<stderr>:",
        "[rank: 0] ",
        "trainer/main ERROR: ",
    ] {
        let lines: Vec<String> = traceback.lines().map(|line| format!("{prefix}{line}")).collect();
        assert_eq!(last(&lines.join("\n")), full, "{prefix}");
    }
    // The seconds may pass on while the lines are collected.
    let lines = traceback.lines().zip(12..);
    let lines: Vec<String> = lines
        .map(|(line, second)| format!("job 7 at 06:01:{second},977 | {line}"))
        .collect();
    assert_eq!(last(&lines.join("\n")), full);
    // A message before the header is no prefix, and the exception may repeat it.
    let quoted = traceback.replace("OSError: [Errno", "RuntimeError: [Errno");
    assert_eq!(
        last(&format!("RuntimeError: {quoted}")).0,
        "RuntimeError: [Errno 28] No space left on device"
    );
}

#[test]
fn an_exception_that_carries_the_traceback_of_a_worker_ends_with_that_of_the_worker() {
    let lines = "Traceback (most recent call last):\n  File \"train.py\", line 6, in main\n    for data in loader:\nValueError: Traceback (most recent call last):\n  File \"/v/site-packages/PIL/ImageFile.py\", line 249, in load\n    raise OSError(\nOSError: image file is truncated (12 bytes not processed)";
    let (text, class) = last(lines);
    assert_eq!(text, "OSError: image file is truncated (12 bytes not processed)");
    assert_eq!(class, "data-corrupt");
}

#[test]
fn a_notebook_announces_the_type_of_an_exception_whose_end_is_cut_off() {
    let lines = "ZeroDivisionError                         Traceback (most recent call last)\n<ipython-input-4> in <module>()\n      2 x = 1\n----> 3 y = x / n";
    assert_eq!(last(lines).0, "ZeroDivisionError");
}

#[test]
fn an_exception_that_the_interpreter_ignores_is_noise_and_the_next_one_is_not() {
    let ignored = "Exception ignored in: <function Loader.__del__ at 0x7f71>\nTraceback (most recent call last):\n  File \"/v/site-packages/torch/utils/data/dataloader.py\", line 1324, in stop\n    assert pid == os.getpid()\nAssertionError: can only test a child process";
    assert_eq!(last(ignored).1, "none");
    let own = ignored.replace("Exception ignored in: <function Loader.__del__ at 0x7f71>\n", "");
    assert_eq!(last(&own).1, "assertion-error");
}
