//! Small cases of one log or a few, as users submit them: expected class, layer and first rank.

use rankguard_offline::OfflineCase;

use crate::common::{case, named, stream};

fn alone(text: &str) -> OfflineCase {
    case(vec![stream("rank-stderr", None, text)])
}

#[test]
fn a_shape_that_does_not_fit_while_weights_are_loaded_is_the_checkpoints() {
    let loading = r#"Traceback (most recent call last):
  File "train.py", line 143, in main
    load_backbone_weights(model, args.weights)
  File "/home/u/project/models.py", line 30, in load_backbone_weights
    layer.weight.data.copy_(torch.from_numpy(part).view_as(layer.weight))
RuntimeError: shape '[64, 3, 7, 7]' is invalid for input of size 512"#;
    assert_eq!(named(&alone(loading)), ("checkpoint-mismatch", "user-code"));
    let forward = loading.replace("load_backbone_weights", "forward");
    assert_eq!(named(&alone(&forward)), ("tensor-shape-mismatch", "user-code"));
}

#[test]
fn a_mistake_in_a_frameworks_own_code_is_the_frameworks() {
    let frameworks = r#"Traceback (most recent call last):
  File "train.py", line 9, in <module>
    trainer.fit(model)
  File "/venv/lib/python3.9/site-packages/pytorch_lightning/trainer/trainer.py", line 700, in fit
    self._call_teardown_hook(model)
  File "/venv/lib/python3.9/site-packages/torch/nn/modules/module.py", line 1130, in __getattr__
    raise AttributeError
AttributeError: 'Net' object has no attribute '_teardown'"#;
    assert_eq!(named(&alone(frameworks)), ("attribute-error", "framework"));
    let called_back = frameworks.replace(
        "  File \"/venv/lib/python3.9/site-packages/torch/nn",
        "  File \"/home/u/net.py\", line 5, in forward\n    y = self.head(x)\n  File \"/venv/lib/python3.9/site-packages/torch/nn",
    );
    assert_eq!(named(&alone(&called_back)), ("attribute-error", "user-code"));
}

#[test]
fn nothing_that_went_wrong_is_none_and_streams_may_be_empty() {
    assert_eq!(named(&alone("step 1 loss 0.3\nstep 2 loss 0.2")), ("none", "none"));
    assert_eq!(named(&case(Vec::new())), ("none", "none"));
    assert_eq!(named(&alone("")), ("none", "none"));
}

#[test]
fn a_step_that_is_cancelled_because_a_task_ended_itself_was_not_cancelled_by_anybody() {
    let text = "srun: error: n1: task 3: Exited with exit code 1
srun: Terminating job step 77.0
slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2025-06-15T10:05:43 ***
srun: error: n1: tasks 0-2: Terminated";
    let told = case(vec![stream("scheduler", None, text)]);
    assert_eq!(named(&told), ("uncaught-exception", "user-code"));
    let order = text.lines().nth(2).unwrap_or_default();
    assert_eq!(named(&case(vec![stream("scheduler", None, order)])).0, "job-cancelled");
}

#[test]
fn a_program_that_said_it_was_done_is_taken_down_without_a_case() {
    let end = "[2025-11-29 08:57:32,086] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 48040
[2025-11-29 08:57:32,304] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -15";
    let done = format!("[after training is done] datetime: 2025-11-29 08:57:30\n{end}");
    assert_eq!(named(&alone(&done)).0, "none");
    assert_ne!(named(&alone(end)).0, "none");
    let oom = format!("{done}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.");
    assert_eq!(named(&alone(&oom)).0, "cuda-oom");
}

#[test]
fn a_process_that_was_killed_without_a_word_is_suspected_to_have_run_out_of_memory() {
    let told = case(vec![stream(
        "scheduler",
        None,
        "/job.sh: line 12:  4242 Killed                  python train.py",
    )]);
    assert_eq!(named(&told), ("host-oom-kill", "platform"));
    assert!(told.confidence < 0.5, "{}", told.confidence);
}

const ILLEGAL: &str = "RuntimeError: CUDA error: an illegal memory access was encountered";

#[test]
fn a_driver_event_and_the_programs_own_words_confirm_each_other() {
    let kernel = "[ 7421.125000] NVRM: Xid (PCI:0000:3b:00): 31, pid=4021, name=python, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f3a_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ";
    let words = case(vec![stream("rank-stderr", Some(3), ILLEGAL)]);
    let both = case(vec![
        stream("rank-stderr", Some(3), ILLEGAL),
        stream("kmsg", None, kernel),
    ]);
    assert_eq!(named(&both).0, "cuda-illegal-memory-access");
    assert!(
        both.confidence > words.confidence,
        "{} > {}",
        both.confidence,
        words.confidence
    );
    assert_eq!(
        named(&case(vec![stream("kmsg", None, kernel)])).0,
        "gpu-engine-exception"
    );
}

#[test]
fn a_kernel_that_ran_out_of_memory_explains_exit_code_137() {
    let launcher = "E1121 10:00:02.000000 77 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: -9) local_rank: 2 (pid: 4242) of binary: /usr/bin/python";
    let kernel = "[ 100.000001] Out of memory: Killed process 4242 (python) total-vm:98000000kB, anon-rss:94000000kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:190000kB oom_score_adj:0";
    let alone = case(vec![stream("kmsg", None, kernel)]);
    let both = case(vec![stream("launcher", None, launcher), stream("kmsg", None, kernel)]);
    assert_eq!(named(&both), ("host-oom-kill", "platform"));
    assert!(both.confidence >= alone.confidence);
    assert!(
        both.reasoning.iter().any(|line| line.contains("process id")),
        "{:?}",
        both.reasoning
    );
}

#[test]
fn a_port_that_went_down_explains_work_completions_with_errors() {
    let rank = "node-1:88:99 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4321> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80:: remoteGidsfe80::";
    let kernel = "[ 900.000001] mlx5_core 0000:9a:00.0 mlx5_2: Port: 1 Link DOWN";
    let both = case(vec![stream("rank-stderr", Some(0), rank), stream("kmsg", None, kernel)]);
    assert!(
        matches!(named(&both).0, "nic-fault" | "nic-link-down"),
        "{}",
        both.class
    );
    let alone = case(vec![stream("rank-stderr", Some(0), rank)]);
    assert_eq!(named(&alone).0, "ib-rdma-error");
    assert_eq!(both.root_rank, None);
}

#[test]
fn a_package_that_asks_another_for_what_it_does_not_have_does_not_fit_it() {
    let text = r#"Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import tensorboard_logger
  File "/venv/lib/python3.10/site-packages/tensorboard_logger/__init__.py", line 4, in <module>
    kind = numpy.object
AttributeError: module 'numpy' has no attribute 'object'"#;
    assert_eq!(named(&alone(text)), ("library-incompatible", "platform"));
    let own = text.replace(
        "/venv/lib/python3.10/site-packages/tensorboard_logger/__init__.py",
        "/home/u/own.py",
    );
    assert_ne!(named(&alone(&own)).0, "unknown");
}

#[test]
fn a_complaint_that_is_tried_again_is_no_failure_unless_the_log_ends_there() {
    let complaint = "[18:07:37 WARNING] ReadTimeoutError(\"HTTPSConnectionPool(host='hub.example', port=443): Read timed out. (read timeout=10)\")";
    let retry = "[18:07:37 WARNING] Retrying in 1s [Retry 1/5].";
    let over = format!("{complaint}\n{retry}\n{{'eval_loss': 5.27}}");
    assert_eq!(named(&alone(&over)).0, "none");
    assert_ne!(named(&alone(complaint)).0, "none");
}

#[test]
fn a_traceback_whose_head_was_cut_off_still_says_whose_code_failed() {
    let text = r#"  File "/venv/lib/python3.10/site-packages/deepspeed/runtime/engine.py", line 2169, in step
    self._take_model_step(lr_kwargs)
  File "/venv/lib/python3.10/site-packages/deepspeed/runtime/zero/stage3.py", line 2117, in unscale
    flat.grad.mul_(1. / scale)
RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu"#;
    assert_eq!(named(&alone(text)), ("device-mismatch", "framework"));
    // A stack printed by a warning ends in no exception.
    let stack = "  File \"/home/u/train.py\", line 3, in step\n    y = model(x)\nEpoch: 3";
    assert_eq!(named(&alone(stack)).0, "none");
}

#[test]
fn what_a_worker_caught_is_told_behind_what_was_made_of_it() {
    let text = r#"Traceback (most recent call last):
  File "train.py", line 150, in <module>
    trainer.train()
  File "/venv/lib/python3.9/site-packages/transformers/trainer.py", line 1317, in train
    return inner_training_loop(
IndexError: Caught IndexError in DataLoader worker process 2.
Original Traceback (most recent call last):
  File "/venv/lib/python3.9/site-packages/torch/utils/data/_utils/worker.py", line 302, in _worker_loop
    data = fetcher.fetch(index)
  File "train.py", line 35, in __getitem__
    second = fields[1]
IndexError: list index out of range"#;
    assert_eq!(named(&alone(text)), ("bad-sample", "user-data"));
}

#[test]
fn a_pod_that_got_what_it_waited_for_has_not_failed() {
    let waits =
        "Warning  FailedScheduling  39s  default-scheduler  0/3 nodes are available: 3 Insufficient nvidia.com/gpu.";
    let told = case(vec![stream("agent-event", None, waits)]);
    assert_eq!(named(&told).0, "k8s-unschedulable");
    let placed =
        format!("{waits}\nNormal  Scheduled  10s  default-scheduler  Successfully assigned jobs/train-0 to gpu-7");
    assert_eq!(named(&case(vec![stream("agent-event", None, &placed)])).0, "none");
    let attached = "Warning  FailedAttachVolume  71s  attachdetach-controller  Multi-Attach error for volume \"pvc-1\"
Normal  SuccessfulAttachVolume  55s  attachdetach-controller  AttachVolume.Attach succeeded for volume \"pvc-1\"";
    assert_eq!(named(&case(vec![stream("agent-event", None, attached)])).0, "none");
}

#[test]
fn a_job_that_stood_still_until_its_limit_did_not_fail_by_the_limit() {
    let limit = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-08-25T13:15:44 DUE TO TIME LIMIT ***";
    let told = case(vec![stream("scheduler", Some(0), limit)]);
    assert_eq!(named(&told).0, "slurm-time-limit");
    assert_eq!(told.root_rank, None);
    let stood = format!("[3540 s] process alive, still inside the blocked call\n{limit}");
    assert_eq!(
        named(&case(vec![stream("scheduler", Some(0), &stood)])).0,
        "hang-no-error"
    );
}

#[test]
fn a_barrier_in_which_one_rank_saves_is_waited_in_for_that_rank() {
    let text = r#"Traceback (most recent call last):
  File "/home/u/finetune.py", line 745, in save_checkpoint
    torch.distributed.barrier()
  File "/venv/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py", line 4556, in barrier
    work.wait()
RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"#;
    assert_eq!(named(&alone(text)), ("hang-stalled-ranks", "framework"));
    let elsewhere = text.replace("save_checkpoint", "train_step");
    assert_eq!(named(&alone(&elsewhere)).0, "nccl-timeout");
}

#[test]
fn what_a_program_can_do_without_is_no_failure_once_it_worked_on() {
    let text = "ConnectionRefusedError: [Errno 111] Connection refused";
    assert_eq!(named(&alone(text)).0, "connection-refused");
    assert_eq!(named(&alone(&format!("{text}\nepoch 1 step 20: loss 0.31"))).0, "none");
}

#[test]
fn ranks_that_wait_for_each_others_tensors_went_different_ways() {
    let stall = "[2024-03-01 10:00:00.000001: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.
Missing ranks:
0: [broadcast.step]
1: [allreduce.head.weight, allreduce.head.bias ...]";
    let apart = alone(stall);
    assert_eq!(named(&apart), ("collective-mismatch", "user-code"));
    assert_eq!(apart.root_rank, None);
    let late = alone(&stall.replace("\n0: [broadcast.step]", ""));
    assert_eq!(
        (late.class.as_str(), late.root_rank),
        ("hang-stalled-ranks", Some(rankguard_model::Rank(1)))
    );
    // Tensors of one kind may come in any order, so the late rank is unknown.
    let any_order = alone(&stall.replace("broadcast.step", "allreduce.tail.weight"));
    assert_eq!(
        (any_order.class.as_str(), any_order.root_rank),
        ("hang-stalled-ranks", None)
    );
    let ready = "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. Stalled ops: HorovodAllreduce_a_0 [ready ranks: 2, 0, 1], HorovodAllreduce_b_0 [ready ranks: 3]";
    assert_eq!(named(&alone(ready)).0, "collective-mismatch");
    let absent = alone(
        &ready
            .replace("[ready ranks: 3]", "[ready ranks: 0, 1, 3]")
            .replace("2, 0, 1", "3, 1, 0"),
    );
    assert_eq!(
        (absent.class.as_str(), absent.root_rank),
        ("hang-stalled-ranks", Some(rankguard_model::Rank(2)))
    );
}

#[test]
fn a_batch_that_is_skipped_is_no_failure_unless_one_comes_of_it() {
    let skipped = "epoch 1:  10%|#  | 10/100 [00:10<01:30,  1.0it/s]
THCudaCheck FAIL file=THCStorage.cu line=58 error=2 : out of memory
WARNING: ran out of memory, skipping batch";
    assert_eq!(named(&alone(skipped)), ("none", "none"));
    let after = format!(
        "{skipped}\nTraceback (most recent call last):\n  File \"train.py\", line 3, in step\n    p.grad.data.div_(n)\nAttributeError: 'NoneType' object has no attribute 'data'"
    );
    assert_eq!(named(&alone(&after)), ("cuda-oom", "user-code"));
}

#[test]
fn retries_that_repeat_are_all_retries() {
    let error = "'(ReadTimeoutError(\"HTTPSConnectionPool(host='data.example.com', port=443): Read timed out. (read timeout=10)\"))' thrown while requesting GET";
    let log = format!(
        "{error}\nRetrying in 1s [Retry 1/5].\n{error}\nRetrying in 1s [Retry 1/5].\n{error}\nRetrying in 1s [Retry 1/5].\n{{'eval_loss': 5.2}}"
    );
    assert_eq!(named(&alone(&log)), ("none", "none"));
    let last = format!("{log}\n{error}");
    assert_ne!(named(&alone(&last)), ("none", "none"));
}

#[test]
fn what_a_wrapper_wraps_is_the_cause_on_its_own_line_too() {
    let mount = "Output: mount.nfs: Failed to resolve server files.example.com: Name or service not known";
    assert_eq!(named(&alone(mount)), ("dns-failure", "network"));
    let refused = "mount.nfs: access denied by server while mounting files.example.com:/data";
    assert_eq!(named(&alone(refused)).0, "filesystem-mount-failure");
    let entry = "Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"/opt/run.sh\": permission denied: unknown";
    assert_eq!(named(&alone(entry)), ("permission-denied", "platform"));
}

#[test]
fn setting_up_an_environment_changed_nothing_where_training_moved_until_it_was_cancelled() {
    let log = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.
$ conda init <SHELL_NAME>
  0%|          | 0/50 [00:00<?, ?it/s]  2%|2         | 1/50 [09:43<7:56:45, 583.78s/it]slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2024-06-12T10:00:00 ***";
    assert_eq!(named(&case(vec![stream("scheduler", None, log)])).0, "job-cancelled");
    let setup = log.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_eq!(
        named(&case(vec![stream("scheduler", None, &setup)])).0,
        "environment-setup-error"
    );
}

#[test]
fn what_fails_after_a_cancellation_failed_because_of_it() {
    let log = "distributed.scheduler - INFO - Close client connection: Client-1
slurmstepd: error: *** STEP 8.0 ON n1 CANCELLED AT 2023-02-22T05:15:11 ***
Traceback (most recent call last):
  File \"/opt/bin/dask-scheduler\", line 10, in <module>
    sys.exit(go())
tornado.util.TimeoutError: Operation timed out after None seconds
srun: error: n1: task 0: Exited with exit code 1";
    assert_eq!(named(&alone(log)), ("job-cancelled", "scheduler"));
    let order = log.lines().nth(1).unwrap_or_default();
    let rest = log.lines().skip(2);
    let first_failed = rest.chain([order]).collect::<Vec<_>>().join("\n");
    assert_ne!(named(&alone(&first_failed)).0, "job-cancelled");
}

#[test]
fn causes_that_a_message_only_thinks_possible_are_not_told() {
    let ray = "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.";
    let told = alone(ray);
    assert_eq!(named(&told), ("remote-worker-lost", "platform"));
    let guesses = ["segfault", "host-oom-kill", "killed-by-signal"];
    assert!(
        told.alternatives
            .iter()
            .all(|other| !guesses.contains(&other.class.as_str()))
    );
}

#[test]
fn a_crash_in_the_transport_is_told_by_its_frames_not_by_who_printed_them() {
    let caught = "[n1:17:0:17] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))
==== backtrace ====
 0  /opt/ucx/lib/libucs.so.0(ucs_handle_error+0x2e4)";
    assert_eq!(named(&alone(caught)).0, "segfault");
    let inside = format!("{caught}\n 1  /opt/ompi/lib/openmpi/mca_pml_ucx.so(mca_pml_ucx_send+0x2c)");
    assert_eq!(named(&alone(&inside)), ("mpi-ucx-segfault", "framework"));
}

#[test]
fn a_file_that_a_sample_needs_is_missing_data() {
    let reading = "Traceback (most recent call last):
  File \"train.py\", line 20, in __getitem__
    image = Image.open(self.paths[index])
  File \"/venv/lib/python3.9/site-packages/PIL/Image.py\", line 3000, in open
    fp = builtins.open(filename, \"rb\")
FileNotFoundError: [Errno 2] No such file or directory: '010'";
    assert_eq!(named(&alone(reading)), ("data-missing", "user-data"));
    let starting = reading.replace("__getitem__", "read_settings");
    assert_eq!(named(&alone(&starting)), ("file-not-found", "user-code"));
}

#[test]
fn ranks_that_cannot_exist_in_a_stall_cost_nothing() {
    let stall = "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. Stalled ops: a [ready ranks: 4294967295, 0], b [ready ranks: ]";
    let told = alone(stall);
    assert_eq!((told.class.as_str(), told.root_rank), ("hang-stalled-ranks", None));
}

#[test]
fn what_every_process_meets_has_no_first_rank() {
    let ended = "mpirun noticed that process rank 1 with PID 17 on node n1 exited on signal 4 (Illegal instruction).";
    let told = case(vec![stream("launcher", None, ended)]);
    assert_eq!((told.class.as_str(), told.root_rank), ("library-incompatible", None));
    let crashed = ended.replace("signal 4 (Illegal instruction)", "signal 11 (Segmentation fault)");
    let told = case(vec![stream("launcher", None, &crashed)]);
    assert_eq!(
        (told.class.as_str(), told.root_rank),
        ("segfault", Some(rankguard_model::Rank(1)))
    );
}

#[test]
fn a_parser_that_calls_a_type_of_typing_is_the_frameworks() {
    let optional = alone("fairseq-train: error: argument --max-tokens: invalid Optional value: '512'");
    assert_eq!(named(&optional), ("argparse-error", "framework"));
    let number = alone("train.py: error: argument --max-tokens: invalid int value: 'many'");
    assert_eq!(named(&number), ("argparse-error", "user-code"));
}

#[test]
fn a_label_that_the_loss_refuses_came_with_the_data() {
    let at = "block: [0,0,0], thread: [5,0,0] Assertion";
    let label = alone(&format!(
        "Loss.cu:250: nll_loss: {at} `t >= 0 && t < n_classes` failed."
    ));
    assert_eq!(named(&label), ("cuda-device-assert", "user-data"));
    let index = alone(&format!(
        "Indexing.cu:1284: indexSelectLargeIndex: {at} `srcIndex < srcSelectDimSize` failed."
    ));
    assert_eq!(named(&index), ("cuda-device-assert", "user-code"));
}

#[test]
fn the_reasoning_gives_the_confidence_of_the_case() {
    let text = r#"Traceback (most recent call last):
  File "train.py", line 5, in main
    x = torch.zeros(1, device="cuda")
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB"#;
    let found = alone(text);
    assert!((found.confidence - 0.88).abs() < 1e-9, "{}", found.confidence);
    let with = |text: &&String| text.contains("with confidence");
    let stated: Vec<&String> = found.reasoning.iter().filter(with).collect();
    assert!(
        stated.len() == 1 && stated[0].contains("with confidence 0.88"),
        "{stated:?}"
    );
}
