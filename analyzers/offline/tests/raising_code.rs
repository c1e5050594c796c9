//! Evidence besides the message: the raising line, its function and the exit code of the process.

use rankguard_offline::{CaseRecord, RecordStream};

fn class_of(text: &str) -> String {
    let stream = RecordStream {
        kind: "rank-stderr".parse().expect("a known kind"),
        rank: None,
        node: None,
        lines: text.lines().map(str::to_owned).collect(),
    };
    let record = CaseRecord {
        id: "one".to_owned(),
        sources: vec![stream],
    };
    record.classify().class
}

#[test]
fn no_space_for_a_semaphore_is_shared_memory_that_is_full() {
    let semaphore = r#"Traceback (most recent call last):
  File "/opt/lib/python3.8/multiprocessing/synchronize.py", line 57, in __init__
    sl = self._semlock = _multiprocessing.SemLock(
OSError: [Errno 28] No space left on device"#;
    assert_eq!(class_of(semaphore), "shm-exhausted");
    let file = semaphore.replace(
        "sl = self._semlock = _multiprocessing.SemLock(",
        "return open(path, flags)",
    );
    assert_eq!(class_of(&file), "disk-full");
}

#[test]
fn a_key_that_is_not_among_what_was_saved_is_the_checkpoints() {
    let saved = r#"Traceback (most recent call last):
  File "/opt/lib/python3.11/site-packages/torch/distributed/checkpoint/default_planner.py", line 362, in create_plan
    md = metadata.state_dict_metadata[fqn]
KeyError: 'optimizer.state.exp_avg'"#;
    assert_eq!(class_of(saved), "checkpoint-mismatch");
    let batch = saved.replace("metadata.state_dict_metadata[fqn]", "batch[name]");
    assert_eq!(class_of(&batch), "key-error");
}

#[test]
fn what_is_asserted_where_arguments_are_checked_is_a_setting() {
    let checked = r#"Traceback (most recent call last):
  File "/work/megatron/arguments.py", line 261, in validate_args
    assert args.max_position_embeddings >= args.seq_length
AssertionError"#;
    assert_eq!(class_of(checked), "config-error");
    let computed = checked.replace("validate_args", "forward").replace(
        "args.max_position_embeddings >= args.seq_length",
        "hidden is not self.last",
    );
    assert_eq!(class_of(&computed), "assertion-error");
}

#[test]
fn notebooks_and_boxes_name_the_functions_too() {
    let notebook = r#"KeyError                                  Traceback (most recent call last)
<ipython-input-13-7> in <module>()
      1 path = "/models"
----> 2 model = load(path)

1 frames
/usr/lib/python3.6/dist-packages/zoo/checkpoint.py in _upgrade_state_dict(state)
    299     history = [
--> 300             {"best": state["best_loss"]}
    301         ]

KeyError: 'best_loss'"#;
    assert_eq!(class_of(notebook), "checkpoint-mismatch");
    let boxed = r#"╭───────────── Traceback (most recent call last) ─────────────╮
│ /opt/venv/lib/python3.9/site-packages/zoo/load.py:30 in read │
│                                                              │
│   29 │   for name in model:                                  │
│ ❱ 30 │   │   part = params_dict[name]                        │
╰──────────────────────────────────────────────────────────────╯
KeyError: 'layers.0.weight'"#;
    assert_eq!(class_of(boxed), "checkpoint-mismatch");
}

#[test]
fn exit_codes_with_a_meaning_tell_it_where_nothing_else_does() {
    let summary = |code: u8| {
        format!(
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n\
             [0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : {code} (pid: 31691)\n  error_file: <N/A>"
        )
    };
    assert_eq!(class_of(&summary(2)), "argparse-error");
    assert_eq!(class_of(&summary(127)), "environment-setup-error");
    assert_ne!(class_of(&summary(1)), "argparse-error");
    let told = format!("{}\nValueError: bad value of x", summary(2));
    assert_ne!(class_of(&told), "argparse-error");
}

#[test]
fn a_wrapper_that_does_not_know_the_frameworks_own_argument_is_of_another_version() {
    let wrapped = r#"Traceback (most recent call last):
  File "/work/fairseq/fairseq/trainer.py", line 251, in model
    self._wrapped_model = models.DistributedFairseqModel(
  File "/work/fairseq/fairseq/models/distributed_fairseq_model.py", line 58, in DistributedFairseqModel
    wrapped_model = DistributedDataParallel(
TypeError: __init__() got an unexpected keyword argument 'gradient_as_bucket_view'"#;
    assert_eq!(class_of(wrapped), "library-incompatible");
    let handed_on = wrapped.replace("DistributedDataParallel(", "DistributedDataParallel(model, **kwargs)");
    assert_eq!(class_of(&handed_on), "type-error");
    let task = wrapped.replace("wrapped_model = DistributedDataParallel(", "return cls(cfg, **extra)");
    assert_eq!(class_of(&task), "type-error");
}
