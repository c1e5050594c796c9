//! Layer and owner of failures whose class alone does not determine them: reporting and silent ranks, running code,
//! and complaints that did not repeat.

use rankguard_model::Rank;
use rankguard_offline::{OfflineCase, RecordStream};

use crate::common::{case, named, stream};

fn of(kind: &str, text: &str) -> OfflineCase {
    case(vec![stream(kind, None, text)])
}

#[test]
fn whoever_publishes_a_model_with_its_weights_answers_for_both() {
    let published = r#"RuntimeError                              Traceback (most recent call last)
<ipython-input-5-0c1d2e3f> in <module>()
----> 2 model = torch.hub.load('acme/translate', 'base.en-fr')
/usr/lib/python3/dist-packages/torch/nn/modules/module.py in load_state_dict(self, state_dict, strict)
--> 830         raise RuntimeError('Error(s) in loading state_dict for {}'.format(name))
RuntimeError: Error(s) in loading state_dict for Translator:
	Missing key(s) in state_dict: "out.weight"."#;
    assert_eq!(
        named(&of("rank-stderr", published)),
        ("checkpoint-mismatch", "framework")
    );
    for own in [
        "model.load_state_dict(torch.load(path))",
        "torch.hub.load('.', 'base', source='local')",
    ] {
        let own = published.replace("torch.hub.load('acme/translate', 'base.en-fr')", own);
        assert_eq!(named(&of("rank-stderr", &own)), ("checkpoint-mismatch", "user-code"));
    }
}

#[test]
fn nobody_met_because_a_process_of_the_framework_ended_itself() {
    let late = "TimeoutError: Timed out while waiting for nodes to join.";
    let check =
        "F0429 10:11:12.131415 4242 client.cc:78] No socket at /tmp/x/daemon.1\n*** Check failure stack trace: ***";
    assert_eq!(named(&of("launcher", late)), ("rendezvous-failure", "network"));
    let both = format!("{check}\n{late}");
    assert_eq!(named(&of("launcher", &both)), ("rendezvous-failure", "framework"));
    // Without other evidence, the check is the failure.
    assert_eq!(of("launcher", check).class, "framework-bug");
}

#[test]
fn more_ranks_than_gpus_are_the_programs() {
    let none = "RuntimeError: No CUDA GPUs are available";
    assert_eq!(
        named(&case(vec![stream("rank-stderr", Some(1), none)])),
        ("gpu-not-visible", "platform")
    );
    let beside = |other: &str| {
        let first = stream("rank-stderr", Some(0), other);
        case(vec![first, stream("rank-stderr", Some(1), none)])
    };
    // The first rank worked until its launcher ended it.
    let ended = "FatalError: `Termination signal` is detected by the operating system.";
    assert_eq!(named(&beside(ended)), ("gpu-not-visible", "user-code"));
    assert_eq!(named(&beside(none)), ("gpu-not-visible", "platform"));
}

#[test]
fn an_index_out_of_range_below_the_loss_is_a_label() {
    let failed = r#"IndexKernel.cu:92: operator(): block: [0,0,0], thread: [4,0,0] Assertion `index >= -sizes[i] && index < sizes[i] && "index out of bounds"` failed.
Traceback (most recent call last):
  File "train.py", line 20, in step
    total = compute_loss(out, targets)
  File "losses.py", line 41, in compute_loss
    return (1 - overlap).mean()
RuntimeError: CUDA error: device-side assert triggered"#;
    assert_eq!(named(&of("rank-stderr", failed)), ("cuda-device-assert", "user-data"));
    let embedding = failed.replace("compute_loss", "embed");
    assert_eq!(
        named(&of("rank-stderr", &embedding)),
        ("cuda-device-assert", "user-code")
    );
}

#[test]
fn the_one_rank_that_tells_of_no_lost_peer_is_the_peer() {
    let lost = |rank: u32| {
        format!(
            "[1,{rank}]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks."
        )
    };
    let of = |ranks: &[u32]| {
        let lines: Vec<String> = ranks.iter().map(|rank| lost(*rank)).collect();
        of("launcher", &lines.join("\n")).root_rank
    };
    assert_eq!(of(&[0, 1, 3]), Some(Rank(2)));
    // Two ranks may be missing, or none, or too few report.
    assert_eq!(of(&[0, 1, 4]), None);
    assert_eq!(of(&[0, 1, 2]), None);
    assert_eq!(of(&[0, 2]), None);
}

#[test]
fn ranks_that_are_known_to_run_and_say_nothing_count() {
    let of = |world: u32| {
        let ranks = (0..world).map(|rank| {
            let text = match rank {
                2 | 4 => "step 3 loss 0.5",
                _ => "NCCL error: remote process exited or there was a network error",
            };
            RecordStream {
                node: Some("n1".to_owned()),
                ..stream("rank-stderr", Some(rank), text)
            }
        });
        case(ranks.collect()).root_rank
    };
    assert_eq!(of(4), Some(Rank(2)));
    assert_eq!(of(5), None);
}

#[test]
fn the_rank_that_submits_what_no_other_does_went_astray() {
    let stall = |astray: &str| {
        format!(
            "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. Stalled ops: grad.a [ready ranks: 2, 0, 1], loss.b [ready ranks: {astray}]"
        )
    };
    let alone = of("launcher", &stall("3"));
    assert_eq!(
        (alone.class.as_str(), alone.root_rank),
        ("collective-mismatch", Some(Rank(3)))
    );
    let two = of("launcher", &stall("3, 4"));
    assert_eq!((two.class.as_str(), two.root_rank), ("collective-mismatch", None));
}

#[test]
fn containers_of_a_job_that_is_through_are_stopped() {
    let killing = "Normal  Killing  5m  kubelet  Stopping container trainer";
    assert_eq!(of("scheduler", killing).class, "external-termination");
    let done = format!("{killing}\nNormal  Completed  4m  job-controller  Job completed");
    assert_eq!(of("scheduler", &done).class, "none");
}

#[test]
fn a_start_without_its_program_was_corrected_where_the_program_then_ran() {
    let absent = "/opt/venv/bin/python: can't open file '-gpus=0': [Errno 2] No such file or directory";
    let ran = "Traceback (most recent call last):\n  File \"train.py\", line 8, in main\n    print(model.inner)\nAttributeError: 'Wrapped' object has no attribute 'inner'";
    assert_eq!(of("rank-stderr", absent).class, "file-not-found");
    assert_eq!(of("rank-stderr", &format!("{absent}\n{ran}")).class, "attribute-error");
    // A launcher raises above it in its own code.
    let launcher = ran.replace("train.py", "/opt/venv/lib/python3.9/site-packages/torch/run.py");
    assert_eq!(
        of("rank-stderr", &format!("{absent}\n{launcher}")).class,
        "file-not-found"
    );
}

#[test]
fn a_rank_that_says_that_it_slept_was_late_by_its_program() {
    let waited = "[rank0]:[E724 08:34:00.939894207 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=45000) ran for 45008 milliseconds before timing out.";
    let gone = "[rank1]:[E724 08:34:25.962612472 ProcessGroupNCCL.cpp:542] [Rank 1] Collective WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=64, NumelOut=64) raised the following async exception: NCCL error: remote process exited or there was a network error";
    let late = |said: &str| {
        let one = stream("rank-stderr", Some(0), waited);
        let other = stream("rank-stderr", Some(1), &format!("{said}\n{gone}"));
        let case = case(vec![
            RecordStream {
                node: Some("n1".to_owned()),
                ..one
            },
            RecordStream {
                node: Some("n2".to_owned()),
                ..other
            },
        ]);
        (case.class, case.layer, case.root_rank)
    };
    let class = "hang-stalled-ranks".to_owned();
    let layer = "framework".to_owned();
    assert_eq!(late("step 3"), (class.clone(), layer, Some(Rank(1))));
    let slept = late("straggler: rank 1 is sleeping 70s before all_reduce");
    assert_eq!(slept, (class, "user-code".to_owned(), Some(Rank(1))));
}

#[test]
fn labels_that_are_all_damaged_are_why_nothing_could_be_unpacked() {
    let scan = |corrupt: u32| {
        format!(
            "train: Scanning data/labels/train images and labels... 64 found, 0 missing, 0 empty, {corrupt} corrupted: 100%|####| 64/64"
        )
    };
    let raised = "Traceback (most recent call last):\n  File \"train.py\", line 5, in load\n    labels, shapes = zip(*cache)\nValueError: not enough values to unpack (expected 2, got 0)";
    let of = |corrupt: u32| of("rank-stderr", &format!("{}\n{raised}", scan(corrupt))).class;
    assert_eq!(of(64), "data-corrupt");
    assert_eq!(of(0), "python-value-error");
}

#[test]
fn what_cannot_be_pickled_is_what_the_exception_says() {
    let raised = |text: &str| of("rank-stderr", text).class;
    assert_eq!(
        raised("AttributeError: Can't pickle local object 'main.<locals>.Data'"),
        "attribute-error"
    );
    assert_eq!(raised("TypeError: cannot pickle '_thread.lock' object"), "type-error");
}

#[test]
fn a_data_worker_that_the_kernel_killed_is_its_ranks() {
    let worker = |pid: u32| format!("RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Killed.");
    let kernel = "[99.2] Out of memory: Killed process 5151 (pt_data_worker) total-vm:12345678kB, anon-rss:5012345kB";
    let rank_of = |pid: u32| {
        let told = case(vec![
            stream("rank-stderr", Some(1), &worker(pid)),
            stream("kmsg", None, kernel),
        ]);
        (told.class, told.root_rank)
    };
    assert_eq!(rank_of(5151), ("host-oom-kill".to_owned(), Some(Rank(1))));
    assert_eq!(rank_of(5152).1, None);
}

#[test]
fn what_a_framework_joins_is_what_the_program_gave_it() {
    let joined = r#"Traceback (most recent call last):
  File "/venv/lib/python3.9/site-packages/pytorch_lightning/trainer/trainer.py", line 611, in run_evaluation
    self.log_epoch_metrics(outputs)
  File "/venv/lib/python3.9/site-packages/pytorch_lightning/core/step_result.py", line 630, in collate_tensors
    return torch.stack(items)
RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!"#;
    assert_eq!(named(&of("rank-stderr", joined)), ("device-mismatch", "user-code"));
    let its_own = joined
        .replace("collate_tensors", "clip_gradients")
        .replace("torch.stack(items)", "norm + self._norm");
    assert_eq!(named(&of("rank-stderr", &its_own)), ("device-mismatch", "framework"));
}

#[test]
fn a_file_that_a_framework_wrote_in_between_is_the_frameworks_to_find() {
    let lost = r#"Traceback (most recent call last):
  File "train.py", line 12, in <module>
    trainer.fit(model)
  File "/venv/lib/python3.9/site-packages/pytorch_lightning/trainer/trainer.py", line 593, in fit
    self.load_spawn_weights(model)
  File "/venv/lib/python3.9/site-packages/torch/serialization.py", line 525, in load
    with _open_file_like(f, 'rb') as opened_file:
FileNotFoundError: [Errno 2] No such file or directory: '/home/u/__temp_weights.ckpt'"#;
    assert_eq!(named(&of("rank-stderr", lost)), ("file-not-found", "framework"));
    // A name that the user chose, and a temporary folder, are no evidence.
    let chosen = lost.replace("/home/u/__temp_weights.ckpt", "/tmp/u/base.ckpt");
    assert_eq!(named(&of("rank-stderr", &chosen)), ("file-not-found", "user-code"));
}

#[test]
fn a_parameter_that_the_framework_was_still_fetching_is_the_frameworks() {
    let fetching = "AssertionError: {'id': 615, 'status': 'INFLIGHT', 'numel': 4096}";
    assert_eq!(named(&of("rank-stderr", fetching)), ("assertion-error", "framework"));
}

#[test]
fn what_a_machine_corrected_failed_no_job_that_worked_on() {
    let corrected = "mce: [Hardware Error]: Machine check events logged
EDAC MC0: 1 CE memory scrubbing error on CPU_SrcID#0_Ha#0_Chan#2_DIMM#0 (channel:2 slot:0 page:0x12 offset:0x0)";
    let beside = |work: &str| {
        let kernel = stream("kmsg", None, corrected);
        case(vec![kernel, stream("rank-stderr", None, work)]).class
    };
    assert_eq!(beside("epoch 1 loss 0.7\ntraining done"), "none");
    assert_ne!(beside("epoch 1 loss 0.7\nBus error (core dumped)"), "none");
    // No line shows work.
    assert_ne!(of("kmsg", corrected).class, "none");
}

#[test]
fn what_a_program_does_not_implement_is_for_the_program_to_write() {
    let own = r#"Traceback (most recent call last):
  File "train.py", line 12, in <module>
    Solver(config).step()
  File "/home/u/project/solver.py", line 44, in step
    raise NotImplementedError
NotImplementedError"#;
    assert_eq!(named(&of("rank-stderr", own)), ("not-implemented", "user-code"));
    let frameworks = own.replace(
        "/home/u/project/solver.py",
        "/venv/lib/python3.9/site-packages/verl/rewards.py",
    );
    assert_eq!(named(&of("rank-stderr", &frameworks)), ("not-implemented", "framework"));
    let asked = frameworks.replace(
        "\nNotImplementedError",
        "\nNotImplementedError: `train_dataloader` must be implemented to be used with the Trainer",
    );
    assert_eq!(named(&of("rank-stderr", &asked)), ("not-implemented", "user-code"));
    // No program writes the kernels of its library.
    let kernel = r#"RuntimeError: "addmm_impl_cpu_" not implemented for 'Half'"#;
    assert_eq!(named(&of("rank-stderr", kernel)), ("not-implemented", "framework"));
}

#[test]
fn a_kernel_that_stops_in_a_driver_is_the_platforms() {
    let oops = |place: &str| {
        format!(
            "[  395.350] BUG: unable to handle kernel NULL pointer dereference at 00000000000000b1\n[  395.351] Oops: 0000 [#1] SMP NOPTI\n[  395.352] RIP: 0010:{place}"
        )
    };
    let placed = |place: &str| of("kmsg", &oops(place)).layer;
    assert_eq!(placed("_nv031695rm+0x79/0x940 [nvidia]"), "platform");
    assert_eq!(placed("hmgrtable_free_handle+0x91/0xa0"), "hardware");
    // The stack of a mere warning names drivers too.
    let warning = "[  9.1] WARNING: CPU: 3 PID: 77 at net/core/dev.c:2111 run+0x1/0x9\n[  9.2] RIP: 0010:mlx5e_open+0x4/0x80 [mlx5_core]";
    assert_eq!(of("kmsg", warning).class, "none");
}

#[test]
fn a_meeting_that_is_over_is_no_matter_of_the_network() {
    let told = of(
        "launcher",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError: ",
    );
    assert_eq!(named(&told), ("rendezvous-failure", "framework"));
    let told = of(
        "launcher",
        "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to (n0, 29500).",
    );
    assert_eq!(named(&told), ("rendezvous-failure", "network"));
}

#[test]
fn what_a_model_does_not_take_is_for_who_calls_it_to_see() {
    let raised = r#"Traceback (most recent call last):
  File "run.py", line 324, in <module>
    trainer.train()
  File "/venv/lib/python3.9/site-packages/transformers/trainer.py", line 2016, in compute_loss
    outputs = model(**inputs)
  File "/venv/lib/python3.9/site-packages/torch/nn/modules/module.py", line 1194, in _call_impl
    return forward_call(*input, **kwargs)
TypeError: forward() got an unexpected keyword argument 'token_type_ids'"#;
    assert_eq!(named(&of("rank-stderr", raised)), ("type-error", "user-code"));
}

#[test]
fn a_mistake_that_the_launcher_saw_elsewhere_first_is_not_one_ranks() {
    let told = |first: u32| {
        let lines = format!(
            "[rank4]: TypeError: iteration over a 0-d tensor\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nFailures:\n[1]:\n  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 3)\nRoot Cause (first observed failure):\n[0]:\n  rank      : {first} (local_rank: {first})\n  exitcode  : 1 (pid: 8)"
        );
        of("launcher", &lines).root_rank
    };
    assert_eq!(told(0), None);
    assert_eq!(told(4), Some(Rank(4)));
}

#[test]
fn what_was_still_being_prepared_kept_the_others_waiting() {
    let timeout = "[E ProcessGroupNCCL.cpp:475] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800572 milliseconds before timing out.";
    let bar = |share: u32| {
        let text = format!(
            "Running tokenizer on dataset: {share}%|##   | 2800/29695 [29:55<4:48:08, 155.57 examples/s]{timeout}"
        );
        of("rank-stderr", &text).class
    };
    assert_eq!(bar(9), "hang-stalled-ranks");
    assert_eq!(bar(100), "nccl-timeout");
}

#[test]
fn norms_that_are_no_numbers_agree_with_nothing() {
    let text = |norm: &str| {
        format!(
            "FloatingPointError: Fatal error: gradients are inconsistent between workers. Try --ddp-backend=no_c10d.\ngrad_norm across the workers:\nrank   0 = {norm}\nrank   1 = {norm}"
        )
    };
    assert_eq!(of("rank-stderr", &text("nan")).class, "loss-nan");
    assert_eq!(of("rank-stderr", &text("1.5")).class, "collective-mismatch");
}

#[test]
fn a_store_that_waits_for_a_rank_that_still_prepares_is_no_matter_of_the_network() {
    let wait = "[rank1]:[W516 14:34:56.854597329 socket.cpp:489] [c10d] waitForInput: socket SocketImpl(fd=79, addr=[localhost]:41170, remote=[localhost]:29500) timed out after 1800000ms";
    let bar = "Tokenizing Prompts (num_proc=64):  92%|#########2| 328986/359152 [29:58<12:05, 41.59 examples/s]";
    let scan = "train: Scanning '../coco/labels/train' images and labels...43718 found, 7 corrupted:  97%|#| 43830/45049 [01:07]";
    assert_eq!(of("rank-stderr", wait).class, "rendezvous-failure");
    for preparing in [bar, scan] {
        let class = of("rank-stderr", &format!("{preparing}{wait}\n")).class;
        assert_eq!(class, "hang-stalled-ranks", "{preparing}");
    }
    let met = "torch.distributed.DistNetworkError: The client socket has timed out after 900s while trying to connect to (10.0.0.1, 29500).";
    assert_eq!(of("rank-stderr", &format!("{bar}\n{met}")).class, "rendezvous-failure");
}

#[test]
fn an_assertion_that_a_path_is_there_is_a_path_that_is_not() {
    let asserted = |code: &str| {
        let text = format!(
            "Traceback (most recent call last):\n  File \"main.py\", line 80, in main\n    cfg = get_config(args.config)\n  File \"/home/u/utils/config.py\", line 46, in get_config\n    {code}\nAssertionError: config file(CONFIG_PATH) is not exist"
        );
        of("rank-stderr", &text).class
    };
    assert_eq!(
        asserted("assert os.path.exists(fname), ('config file({}) is not exist')"),
        "file-not-found"
    );
    assert_eq!(
        asserted("assert not os.path.exists(fname), 'there is one already'"),
        "assertion-error"
    );
}

#[test]
fn a_file_that_another_rank_removed_first_was_raced_for() {
    let raised = |rank: &str, code: &str| {
        let text = format!(
            "{rank}Traceback (most recent call last):\n{rank}  File \"train.py\", line 372, in finish\n{rank}    {code}\n{rank}FileNotFoundError: [Errno 2] No such file or directory: '/mnt/u/__temp.ckpt'"
        );
        of("rank-stderr", &text).class
    };
    assert_eq!(raised("[rank3]: ", "os.remove(path)"), "race-on-shared-filesystem");
    assert_eq!(raised("[rank3]: ", "open(path)"), "file-not-found");
    // A single process that removes an absent file has no rival.
    assert_eq!(raised("", "os.remove(path)"), "file-not-found");
}

#[test]
fn what_slurm_says_of_its_own_configuration_is_no_users_matter() {
    let invalid = "slurmctld: error: Setting node n7 state to INVAL with reason:Low RealMemory";
    assert_eq!(
        named(&of("scheduler", invalid)),
        ("scheduler-misconfigured", "scheduler")
    );
    let refused = "sbatch: error: invalid partition specified: gpu";
    assert_eq!(named(&of("scheduler", refused)), ("invalid-job-spec", "user-code"));
}

#[test]
fn what_a_shell_cannot_run_after_the_program_failed_did_not_fail_it() {
    let failed = "[rank0]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072000, NumelOut=131072000, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.";
    let shell = "train.sh: line 45: --disable_tqdm: command not found";
    assert_eq!(of("rank-stderr", &format!("{failed}\n{shell}")).class, "nccl-timeout");
    assert_eq!(
        of("rank-stderr", &format!("{shell}\n{failed}")).class,
        "environment-setup-error"
    );
    // The shell fails twice, and the first failure is the reason.
    let module = "environment: line 17: /usr/share/lmod/lmod/libexec/lmod: No such file or directory";
    let both = format!("{module}\nslurm_script: line 8: mpirun: command not found");
    assert_eq!(named(&of("scheduler", &both)), ("environment-setup-error", "platform"));
}

#[test]
fn a_program_that_is_not_where_the_job_says_is_the_jobs() {
    let missing = |program: &str| {
        of(
            "scheduler",
            &format!("slurmstepd: error: execve(): {program}: No such file or directory"),
        )
        .class
    };
    assert_eq!(missing("/home/user/./train"), "file-not-found");
    assert_eq!(missing("torchrun"), "environment-setup-error");
}

#[test]
fn what_blue_gene_tells_as_news_is_no_failure() {
    let event = |severity: &str, text: &str| {
        format!(
            "1132596009 2005.11.21 R16-M0-NC-I:J18-U01 2005-11-21-10.00.09.399765 R16-M0-NC-I:J18-U01 RAS KERNEL {severity} {text}"
        )
    };
    let killed = "ciod: Received signal 15, code=0, errno=0, address=0x000001b2";
    let reset = "ciod: Error reading message prefix on CioStream socket to 172.16.1.2:52839, Connection reset by peer";
    assert_eq!(of("agent-event", &event("INFO", killed)).class, "none");
    let both = format!("{}\n{}", event("INFO", killed), event("FATAL", reset));
    assert_eq!(named(&of("agent-event", &both)), ("connection-reset", "network"));
}

#[test]
fn what_failed_before_finalizers_ran_is_what_failed() {
    let opening = r#"Traceback (most recent call last):
  File "/env/lib/python3.9/multiprocessing/queues.py", line 341, in put
    obj = dumps(obj)
OSError: [Errno 24] Too many open files

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/env/lib/python3.9/multiprocessing/util.py", line 262, in _run_finalizers"#;
    assert_eq!(named(&of("rank-stderr", opening)), ("too-many-open-files", "platform"));
    let (_, finalizers) = opening.split_once("occurred:\n\n").expect("two tracebacks");
    assert_eq!(of("rank-stderr", finalizers).class, "none");
}

#[test]
fn a_store_that_is_lost_while_ranks_meet_is_a_meeting_that_fails() {
    let failed = r#"Traceback (most recent call last):
  File "/env/lib/python3.9/site-packages/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", line 113, in _call_store
    return getattr(self._store, store_op)(*args, **kwargs)
RuntimeError: Broken pipe"#;
    assert_eq!(named(&of("launcher", failed)), ("rendezvous-failure", "network"));
    assert_eq!(
        of("launcher", &failed.replace("_call_store", "send")).class,
        "connection-reset"
    );
}

#[test]
fn arguments_that_do_not_go_together_are_settings() {
    let refused = r#"Traceback (most recent call last):
  File "/env/lib/python3.12/site-packages/serve/server_args.py", line 1890, in from_cli_args
    return cls(**{attr: getattr(args, attr) for attr in attrs})
AssertionError: Please set a dp-size > 1."#;
    assert_eq!(named(&of("rank-stderr", refused)), ("config-error", "user-code"));
}
