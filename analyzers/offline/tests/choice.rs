//! Choice of the cause among several complaints, and complaints that the log itself shows as no
//! failure.

use rankguard_offline::{CaseRecord, RecordStream};

fn class_in(kind: &str, text: &str) -> String {
    let stream = RecordStream {
        kind: kind.parse().expect("a known kind"),
        rank: None,
        node: None,
        lines: text.lines().map(str::to_owned).collect(),
    };
    let id = "one".to_owned();
    let sources = vec![stream];
    CaseRecord { id, sources }.classify().class
}

fn class(text: &str) -> String {
    class_in("rank-stderr", text)
}

#[test]
fn a_kernel_that_panics_over_its_machine_follows_from_the_machine() {
    let check = "[ 88.100000] mce: [Hardware Error]: Machine check: Processor context corrupt";
    let panic = "[ 88.100010] Kernel panic - not syncing: Fatal machine check";
    assert_eq!(class_in("kmsg", &format!("{check}\n{panic}")), "cpu-hardware-error");
    assert_eq!(class_in("kmsg", panic), "kernel-crash");
    // Its origin is unknown, so it explains nothing.
    let unknown = "[ 88.100000] Dazed and confused, but trying to continue";
    assert_eq!(class_in("kmsg", &format!("{unknown}\n{panic}")), "kernel-crash");
}

#[test]
fn a_name_without_an_address_is_why_nobody_met_under_it() {
    let name = "[W socket.cpp:558] [c10d] The IPv6 network addresses of (head-0, 50176) cannot be retrieved (gai error: -2 - Name or service not known).";
    let met =
        "[E socket.cpp:610] [c10d] The client socket has failed to connect to any network address of (head-0, 50176).";
    assert_eq!(class(&format!("{name}\n{met}")), "dns-failure");
    // A host without such an address logs the same and continues, or was refused at another one.
    assert_eq!(class(name), "none");
    let refused = "[W socket.cpp:601] [c10d] The client socket has failed to connect to [head-0]:50176 (errno: 111 - Connection refused).";
    assert_eq!(class(&format!("{name}\n{refused}\n{met}")), "rendezvous-failure");
}

#[test]
fn a_full_disk_is_no_fault_of_the_runtime_that_meets_it() {
    let full = "docker: Error response from daemon: mkdir /var/lib/docker/overlay2/3a1c-init: no space left on device.";
    assert_eq!(class(full), "disk-full");
    let other = full.replace("no space left on device", "unexpected layer");
    assert_eq!(class(&other), "container-runtime-error");
}

#[test]
fn a_refusal_counts_where_the_program_that_complains_was_refused() {
    let import = "slurmstepd: error: pyxis: failed to import docker image";
    let mkdir = "slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied";
    assert_eq!(
        class_in("scheduler", &format!("{import}\n{mkdir}")),
        "permission-denied"
    );
    let registry = "slurmstepd: error: pyxis:     [ERROR] URL https://registry.example/proxy_auth returned error code: 401 Unauthorized";
    assert_eq!(
        class_in("scheduler", &format!("{import}\n{registry}")),
        "k8s-image-pull"
    );
}

#[test]
fn an_installer_without_its_index_finds_nothing() {
    let none = "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)";
    let retry = "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by 'ConnectTimeoutError(<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>, 'Connection to pypi.org timed out. (connect timeout=15)')':";
    assert_eq!(class(none), "library-incompatible");
    assert_ne!(class(&format!("{retry}\n{none}")), "library-incompatible");
}

#[test]
fn the_daemon_that_ends_a_step_is_believed_in_a_launchers_log_too() {
    let memory = "2: k300:UCM:10c7c:73c03540: 7393885 us(7393885 us!!!):  DAPL ERR reg_mr Cannot allocate memory";
    let killed = "2: slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77.1. Some of your processes may have been killed by the cgroup out-of-memory handler.";
    assert_eq!(class_in("launcher", memory), "ib-rdma-error");
    assert_eq!(class_in("launcher", &format!("{memory}\n{killed}")), "host-oom-kill");
}

#[test]
fn a_warning_explains_the_exception_that_tells_less() {
    let long = "Token indices sequence length is longer than the specified maximum sequence length for this model (603 > 512). Running this sequence through the model will result in indexing errors";
    let raised = "IndexError: index out of range in self";
    assert_eq!(class(long), "none");
    assert_eq!(class(&format!("{long}\n{raised}")), "bad-sample");
    // A specific exception needs no explanation.
    let memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    assert_eq!(class(&format!("{long}\n{memory}")), "cuda-oom");
}

#[test]
fn weights_that_were_taken_without_all_fitting_are_not_what_ended_the_program() {
    let told = "size mismatch for head.fc_cls.weight: copying a param with shape torch.Size([81, 1024]) from checkpoint, the shape in current model is torch.Size([2, 1024]).";
    let raised = "Traceback (most recent call last):
  File \"tools/train.py\", line 186, in main
    step(model)
AttributeError: 'Parallel' object has no attribute 'reducer'";
    assert_eq!(class(told), "checkpoint-mismatch");
    assert_eq!(class(&format!("{told}\n{raised}")), "attribute-error");
    // A strict load raises it, and exceptions during shutdown follow from it.
    let strict = format!(
        "Traceback (most recent call last):
  File \"tools/train.py\", line 80, in build
    model.load_state_dict(state)
RuntimeError: Error(s) in loading state_dict for Net:
\t{told}"
    );
    assert_eq!(class(&format!("{strict}\n{raised}")), "checkpoint-mismatch");
}

#[test]
fn keys_tell_what_they_are_looked_up_in() {
    let looked_up = |code: &str, key: &str| {
        let text = format!(
            "Traceback (most recent call last):\n  File \"train.py\", line 8, in build\n    {code}\nKeyError: {key}"
        );
        class(&text)
    };
    assert_eq!(
        looked_up("f = DatasetCatalog._REGISTERED[name]", "'street'"),
        "config-error"
    );
    assert_eq!(looked_up("return self.vocab.o2i[o]", "53582"), "data-label-error");
    assert_eq!(
        looked_up("rank = os.environ['LOCAL_RANK']", "'LOCAL_RANK'"),
        "key-error"
    );
    assert_eq!(looked_up("port = cfg['port']", "'port'"), "config-error");
    assert_eq!(looked_up("x = batch['IMAGE_SIZE']", "'IMAGE_SIZE'"), "key-error");
    assert_eq!(class("[rank0]: KeyError: 'MASTER_ADDR'"), "key-error");
}

#[test]
fn an_exception_that_means_nothing_meant_nothing_before_it_was_raised_again() {
    let inner = "Traceback (most recent call last):
  File \"/venv/lib/python3.10/ssl.py\", line 1130, in read
    return self._sslobj.read(len, buffer)
TimeoutError: The read operation timed out";
    // The log ends inside the chain: nothing else is known.
    assert_eq!(class(inner), "connection-timeout");
    let tracker = format!(
        "{inner}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File \"/venv/lib/python3.10/site-packages/wandb/sdk/lib/retry.py\", line 131, in __call__
    result = self._call_fn(*args, **kwargs)
wandb.errors.CommError: wandb: ERROR Error while calling W&B API: internal error (<Response [503]>)"
    );
    assert_ne!(class(&tracker), "connection-timeout");
}

#[test]
fn a_server_that_answers_again_has_only_been_waited_for() {
    let waits = "[5887848.292020] nfs: server nas1 not responding, still trying";
    let answers = "[5887956.603171] nfs: server nas1 OK";
    assert_eq!(class_in("kmsg", waits), "filesystem-hang");
    assert_eq!(class_in("kmsg", &format!("{waits}\n{answers}")), "none");
    let again = format!("{waits}\n{answers}\n{waits}");
    assert_eq!(class_in("kmsg", &again), "filesystem-hang");
    let blocked = "[5887999.100000] INFO: task python:4242 blocked for more than 120 seconds.";
    assert_ne!(class_in("kmsg", &format!("{waits}\n{answers}\n{blocked}")), "none");
}

#[test]
fn a_retry_at_the_end_of_a_log_has_helped_nobody_yet() {
    let refused = "n1:88:102 [0] NCCL INFO socketPollConnect: connect returned No route to host, retrying (3/34) after sleep for 300 msec";
    assert_eq!(class(refused), "network-unreachable");
    assert_eq!(
        class(&format!(
            "{refused}\nn1:88:102 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE"
        )),
        "none"
    );
}

#[test]
fn what_fails_after_it_was_tried_again_has_failed() {
    let retry = "n1:88:102 [0] NCCL INFO Call to connect returned Connection refused, retrying";
    let failed = "n1:88:102 [0] include/socket.h:390 NCCL WARN Connect to 10.0.0.7<21724> failed : Connection refused";
    let log = format!("{retry}\n{retry}\n{failed}\nn1:88:102 [0] NCCL INFO bootstrap.cc:100 -> 2");
    assert_eq!(class(&log), "connection-refused");
}

#[test]
fn a_session_that_started_waits_no_more() {
    let waits = "I tensorflow/core/distributed_runtime/master.cc:267] CreateSession still waiting for response from worker: /job:worker/replica:0/task:1";
    let started =
        "I tensorflow/core/distributed_runtime/master_session.cc:1192] Start master session 5c5b5f7d with config:";
    assert_eq!(class(waits), "rendezvous-failure");
    assert_eq!(class(&format!("{waits}\n{started}")), "none");
}

#[test]
fn what_is_complained_of_between_steps_stops_nobody() {
    let skew = "WARNING:Detected clock skew (1 mins 11 secs), adjusting time estimates";
    let step = |number: u32| format!("step {number} loss 0.{number}");
    let log = [
        skew.to_owned(),
        step(1),
        step(2),
        skew.to_owned(),
        step(3),
        skew.to_owned(),
    ]
    .join("\n");
    assert_eq!(class(&log), "none");
    assert_eq!(class_in("agent-event", &log), "none");
    assert_eq!(class(skew), "clock-skew");
}
