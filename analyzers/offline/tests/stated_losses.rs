//! What lines state of lost machines and processes, of faults that machines overcame, and of services that jobs share.

use rankguard_model::{NodeId, Timestamp};
use rankguard_offline::OfflineCase;

use crate::folders::{diagnose, group, group_written_by};

fn only(name: &str, text: &str) -> OfflineCase {
    let cases = diagnose(&[(name, text)]);
    assert_eq!(cases.len(), 1, "{text}: {cases:?}");
    cases.into_iter().next().unwrap()
}

fn check(name: &str, text: &str, class: &str, blamed: &str) -> OfflineCase {
    let case = only(name, text);
    assert_eq!(
        (case.class.as_str(), case.blamed.as_str()),
        (class, blamed),
        "{text}: {:?}",
        case.reasoning
    );
    case
}

/// verl-project/verl#4921.
const DEAD_ACTOR: &str = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n        \
                          class_name: create_colocated_worker_cls.<locals>.WorkerDict\n        pid: 87687\n        name: \
                          07GxnAWorkerDict_0:3\n        ip: 10.29.214.5\nThe actor is dead because its worker process has died. \
                          Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error \
                          code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer due to \
                          high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly due to \
                          SIGSEGV or another unexpected error.\n";

#[test]
fn a_dead_actor_has_the_address_in_its_exception_and_none_of_its_possible_causes() {
    let case = check("run.log", DEAD_ACTOR, "remote-worker-lost", "node 10.29.214.5");
    assert!(
        case.alternatives
            .iter()
            .all(|other| other.class != "host-oom-kill" && other.class != "segfault")
    );
}

#[test]
fn causes_in_lines_below_their_introduction_are_no_evidence() {
    let list = "Possible reasons:\n  1. CUDA out of memory\n  2. NCCL timeout\n";
    assert!(diagnose(&[("run.log", list)]).is_empty());
    let error = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
    check("run.log", &format!("{list}{error}"), "cuda-oom", "the job");
}

/// horovod/horovod#2907.
#[test]
fn a_rank_that_ran_on_after_its_message_was_ended_by_the_signal() {
    let kill =
        "[0]<stderr>:RuntimeError: check_rank and exit epoch=1 batch=0 start_rank=0 rank=0\n[0]<stderr>:Killed\n";
    let case = check("run.log", kill, "killed-by-signal", "rank 0");
    assert!(case.confidence <= 0.6, "{}", case.confidence);
    // A traceback is the end of the program, which its launcher may kill as it hangs.
    let traceback = "[0]<stderr>:Traceback (most recent call last):\n[0]<stderr>:  File \"train.py\", line 9, in <module>\n\
                     [0]<stderr>:    check()\n[0]<stderr>:RuntimeError: check failed\n[0]<stderr>:Killed\n";
    assert_eq!(only("run.log", traceback).class, "uncaught-exception");
}

/// ray-project/ray#18449.
#[test]
fn several_machines_that_are_marked_dead_are_blamed_together() {
    let dead = |second: u32, ip: &str| {
        format!(
            "2021-09-05 05:42:{second},294\tWARNING worker.py:1228 -- The node with node id: 0fc1 and ip: {ip} has been marked dead \
             because the detector has missed too many heartbeats from it. This can happen when a raylet crashes unexpectedly or \
             has lagging heartbeats.\n"
        )
    };
    let bar = "Reduce Progress.:  69%|######9   | 691/1000 [28:51<28:26,  5.52s/it]";
    let log = format!("{bar}{}{}", dead(38, "172.31.57.35"), dead(39, "172.31.12.38"));
    let case = check(
        "run.log",
        &log,
        "remote-worker-lost",
        "nodes 172.31.12.38, 172.31.57.35",
    );
    assert_eq!(case.first_at.as_deref(), Some("2021-09-05T05:42:38.294Z"));
    check(
        "run.log",
        &dead(38, "172.31.57.35"),
        "remote-worker-lost",
        "node 172.31.57.35",
    );
}

/// vllm-project/vllm#19960.
#[test]
fn a_daemon_that_was_given_up_is_on_the_host_of_its_record() {
    let log = "{\"event_id\":\"03cd\",\"host_name\":\"minion-1\",\"label\":\"RAYLET_MARKED_DEAD\",\"message\":\"[Timeout] Exiting \
               because this node manager has mistakenly been marked as dead by the GCS: GCS failed to check the health of this \
               node for 5 times. This is likely because the machine or raylet has become overloaded.\",\"pid\":\"89\",\
               \"severity\":\"FATAL\",\"source_type\":\"RAYLET\",\"timestamp\":1750683012}\n";
    let case = check("event_RAYLET.log", log, "remote-worker-lost", "node minion-1");
    assert_eq!(case.root_node, Some(NodeId::from("minion-1")));
}

/// pytorch/pytorch#150916, and the same of two survivors in a chain.
#[test]
fn a_peer_is_blamed_only_if_it_reports_no_loss_itself() {
    let lost = |host: &str, peer: &str| {
        format!(
            "{host}:984:1257 [4] NCCL WARN socketProgress: Connection closed by remote peer {peer}.eu-north-1.compute.internal<32926>\n"
        )
    };
    check(
        "run.log",
        &lost("gpu-01", "gpu-02"),
        "remote-worker-lost",
        "node gpu-02",
    );
    let chain = lost("gpu-01", "gpu-02") + &lost("gpu-02", "gpu-03");
    check("run.log", &chain, "remote-worker-lost", "node gpu-03");
    let two = lost("gpu-01", "gpu-02") + &lost("gpu-03", "gpu-04");
    check("run.log", &two, "remote-worker-lost", "the job");
}

/// real-stanford/flingbot#11.
#[test]
fn the_machine_of_a_memory_kill_may_stand_in_the_next_line() {
    let log = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: \
               192.168.0.107, ID: fc2b) where the task (actor ID: f9cc, name=SimEnv.__init__, pid=4331, memory used=2.22GB) was \
               running was 59.49GB / 62.58GB (0.950744), which exceeds the memory usage threshold of 0.95. Ray killed this worker \
               (ID: d98a) because it was the most recently scheduled task.\n";
    check("run.log", log, "host-oom-kill", "node 192.168.0.107");
}

/// OpenRLHF/OpenRLHF#621.
const DEAD_WORKER: &str = "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot \
                           the problem, check the logs for the dead worker. RayTask ID: ffff Worker ID: d893 Node ID: 8440 Worker \
                           IP address: 172.19.24.110 Worker port: 10185 Worker PID: 90738 Worker exit type: SYSTEM_ERROR\n";
const COMPLETION: &str =
    "(RayWorkerWrapper pid=92234, ip=172.19.24.111) mlx5: host_unknown: got completion with error:\n";

#[test]
fn errors_of_the_network_below_a_stated_end_follow_from_it() {
    let log = format!("{DEAD_WORKER}{COMPLETION}");
    check("run.log", &log, "remote-worker-lost", "node 172.19.24.110");
    // The other way round the error may have ended the worker.
    let log = format!("{COMPLETION}{DEAD_WORKER}");
    assert_eq!(only("run.log", &log).class, "ib-rdma-error");
}

const CORRECTED: &str = "Feb 23 03:28:16 n7 kernel: mce: [Hardware Error]: Machine check events logged\n\
                         Feb 23 03:28:16 n7 kernel: EDAC sbridge MC1: HANDLING MCE MEMORY ERROR\n\
                         Feb 23 03:28:16 n7 kernel: EDAC sbridge MC1: CPU 1: Machine Check Event: 0 Bank 11: 8c00004f000800c2\n\
                         Feb 23 03:28:16 n7 kernel: EDAC sbridge MC1: TSC 0\n\
                         Feb 23 03:28:16 n7 kernel: EDAC sbridge MC1: ADDR ee30a0000\n\
                         Feb 23 03:28:16 n7 kernel: EDAC sbridge MC1: PROCESSOR 0:306e4 TIME 1519356496 SOCKET 1 APIC 20\n";

#[test]
fn a_corrected_error_of_the_memory_controller_is_a_note_that_names_the_module() {
    let error = "Feb 23 03:28:16 n7 kernel: EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 \
                 slot:0 page:0xee30a0 offset:0x0 grain:32 syndrome:0x0)\n";
    let found = group(&[("messages", &format!("{CORRECTED}{error}"))]);
    assert!(found.cases.is_empty(), "{:?}", found.cases);
    let notes: Vec<String> = found.reports.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("CPU_SrcID#1_Ha#0_Chan#0_DIMM#0"), "{notes:?}");
    // An uncorrected one is a failure, also beside a corrected one.
    let fatal = "Feb 23 03:28:16 n7 kernel: EDAC MC1: 1 UE memory read error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#1 (channel:0 slot:1)\n";
    assert_eq!(
        group(&[("messages", &format!("{CORRECTED}{fatal}{error}"))])
            .cases
            .len(),
        1
    );
    assert_eq!(group(&[("messages", CORRECTED)]).cases.len(), 1);
}

/// kubernetes/kubernetes#32542.
#[test]
fn a_full_disk_that_a_kubelet_reports_is_one_of_its_node() {
    let event = "30m  30m  1  {kubelet gke-n1-pool-5v1s}  Warning FailedSync  Error syncing pod, skipping: failed to \"StartContainer\": \
                 write /layer: no space left on device\n";
    check("events.txt", event, "disk-full", "node gke-n1-pool-5v1s");
}

/// canonical/microk8s#1866.
#[test]
fn a_node_that_is_ready_again_did_not_crash() {
    let events = "49m  Normal   Starting      node/c7         Starting kubelet.\n\
                  49m  Normal   NodeNotReady  node/c7         Node c7 status is now: NodeNotReady\n";
    let taken_back = "49m  Normal   TaintManagerEviction  pod/train-1   Cancelling deletion of Pod default/train-1\n";
    let ready = "48m  Normal   NodeReady     node/c7         Node c7 status is now: NodeReady\n";
    let evicted = "49m  Normal   TaintManagerEviction  pod/train-1   Marking for deletion Pod default/train-1\n";
    let cases = |parts: &[&str]| diagnose(&[("events.txt", &parts.concat())]);
    assert!(cases(&[events, ready]).is_empty());
    assert!(cases(&[events, taken_back]).is_empty());
    assert_eq!(cases(&[events])[0].class, "node-crash");
    assert!(!cases(&[events, evicted, ready]).is_empty());
    let rebooted = "48m  Warning  Rebooted      node/c7         Node c7 has been rebooted, boot id: 91\n";
    assert!(!cases(&[events, rebooted, ready]).is_empty());
    let other = "48m  Normal   NodeReady     node/c8         Node c8 status is now: NodeReady\n";
    assert!(!cases(&[events, other]).is_empty());
}

/// NVIDIA/Megatron-LM#1880.
#[test]
fn a_summary_states_the_year_of_the_stamps_above_it() {
    let log = "E1223 05:17:58.412000 3304103 site-packages/torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: \
               -11) local_rank: 0 (pid: 3304209) of binary: /usr/bin/python\n\
               Root Cause (first observed failure):\n[0]:\n  time      : 2024-12-23_05:17:58\n  host      : gpu-01\n  rank      : 0 \
               (local_rank: 0)\n  exitcode  : -11 (pid: 3304209)\n  traceback : Signal 11 (SIGSEGV) received by PID 3304209\n";
    let written = Some(Timestamp::from_millis(1_767_000_000_000));
    let case = group_written_by(&[("run.log", log)], written).cases.remove(0);
    assert_eq!(
        (case.first_at.as_deref(), case.first_at_note.as_deref()),
        (Some("2024-12-23T05:17:58.412Z"), None)
    );
}

/// madMAx43v3r/chia-gigahorse#301.
#[test]
fn the_clock_of_one_boot_orders_the_lines_of_one_log() {
    let log = "[14328.198504] NVRM: Xid (PCI:0000:0a:00): 31, pid=13332, name=plot, Ch 00000010, intr 00000000. MMU Fault: ENGINE \
               CE2 HUBCLIENT_CE0 faulted @ 0x7f29_5b8c9000. Fault is of type FAULT_PRIV_VIOLATION ACCESS_TYPE_VIRT_READ\n\
               [14370.687545] NVRM: Xid (PCI:0000:0a:00): 62, pid='<unknown>', name=<unknown>, 2023b230 20238a3a 2023e8b6\n";
    let case = only("dmesg.txt", log);
    assert_eq!(case.class, "gpu-internal-fault");
    let reasons = case.reasoning.join("\n");
    assert!(reasons.contains("42.5 s earlier"), "{reasons}");
    assert!(!reasons.contains("may follow from it"), "{reasons}");
}

/// kubeflow/trainer#2008.
#[test]
fn an_exit_code_without_a_message_is_no_exception_to_read() {
    let log = "1.708507856644096e+09\tDEBUG\tevents\tError pod simple-worker-0 container pytorch exitCode: 1 terminated message:\n\
               1.7085078566441019e+09\tDEBUG\tevents\tPod: kubeflow.simple-worker-0 exited with code 1\n";
    let case = check("run.log", log, "uncaught-exception", "pod simple-worker-0");
    assert!(
        case.advice.contains("exit code") && !case.advice.contains("Read the exception"),
        "{}",
        case.advice
    );
}

/// horovod/horovod#2907.
#[test]
fn a_code_of_sigkill_states_no_container() {
    let case = only("run.log", "Process 0 exit with status code 137.\n");
    let reasons = case.reasoning.join("\n");
    assert!(!reasons.contains("container-oom-kill"), "{reasons}");
    assert!(
        case.alternatives
            .iter()
            .all(|other| other.class != "container-oom-kill")
    );
}

#[test]
fn services_file_systems_and_networks_are_blamed_for_their_own_errors() {
    check(
        "run.log",
        "RuntimeError: write(): fd 29 failed with Input/output error\n",
        "storage-io-error",
        "a file system that the log does not name",
    );
    check(
        "run.log",
        "OSError: [Errno 116] Stale file handle: '/home/a/ck/last.pt'\n",
        "storage-io-error",
        "the file system of /home/a/ck/last.pt",
    );
    check(
        "run.log",
        "OSError: [Errno 28] No space left on device: '/ck/last.pt'\n",
        "disk-full",
        "the file system of /ck/last.pt",
    );
    check(
        "run.log",
        "OSError: [Errno 122] Disk quota exceeded: '/ck/last.pt'\n",
        "disk-full",
        "the job",
    );
    let upload = |code: &str, text: &str| {
        format!(
            "botocore.exceptions.ClientError: An error occurred ({code}) when calling the CreateMultipartUpload operation (reached max retries: 4): {text}\n"
        )
    };
    check(
        "run.log",
        &upload("SlowDown", "Please reduce your request rate."),
        "object-storage-error",
        "the object store",
    );
    // A request that is refused is one of the job.
    assert_eq!(
        only(
            "run.log",
            &upload("NoSuchBucket", "The specified bucket does not exist")
        )
        .blamed,
        "the job"
    );
    let completion = "n7:980:1402 [0] transport/net_ib.cc:1872 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<36315> with \
                      status=12 opcode=32698 len=32696 vendor err 129 (Send)\n";
    check(
        "run.log",
        completion,
        "ib-rdma-error",
        "the network between node n7 and peer 10.0.0.9",
    );
    let spool = "slurmstepd: error: execve(): /tmp/slurmd/job00089/slurm_script: No such file or directory\n";
    check(
        "job.err",
        spool,
        "slurm-node-fail",
        "a machine that the log does not name",
    );
    let lookup = "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsqueue: error: fetch_config: DNS SRV \
                  lookup failed\n";
    check("run.log", lookup, "dns-failure", "the name service");
    // Azure/cyclecloud-slurm, with the host in the prefix of the system log.
    let daemon = "Aug  9 22:11:24 n7 slurmd[3136]: slurmd: fatal: Unable to determine this slurmd's NodeName\n";
    check(
        "messages",
        daemon,
        "scheduler-misconfigured",
        "the scheduler on node n7",
    );
    let name = "socket.gaierror: [Errno -2] Name or service not known\n";
    assert_eq!(only("run.log", name).blamed, "the job");
}

/// Texts of Open MPI (`help-errmgr-base.txt`), pdsh, the coordination service of XLA and Lustre.
#[test]
fn a_line_that_names_the_lost_machine_gives_the_blame() {
    let daemon = "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[55221,0],0] on node nodeA\n  Remote \
                  daemon: [[55221,0],2] on node nodeC\n";
    check("run.log", daemon, "remote-worker-lost", "node nodeC");
    let login = "worker-3: ssh: connect to host worker-3 port 22: Connection refused\npdsh@worker-1: worker-3: ssh exited with \
                 exit code 255\n";
    check("run.log", login, "ssh-failure", "node worker-3");
    let task = "E1130 07:55:10.000000   881 coordination_service.cc:1441] The following tasks are unhealthy (stopped sending \
                heartbeats):\n/job:jax_worker/replica:0/task:3\n";
    check("run.log", task, "remote-worker-lost", "rank 3");
    let server = "LustreError: 11-0: lfs01-OST0003-osc-ffff88: operation ost_read to node 10.0.0.5@o2ib failed: rc = \
                  -107\nLustre: lfs01-OST0003-osc-ffff88: Connection to lfs01-OST0003 (at 10.0.0.5@o2ib) was lost; in progress \
                  operations using this service will wait for recovery to complete\n";
    check("run.log", server, "filesystem-hang", "server 10.0.0.5@o2ib");
}

#[test]
fn errors_of_the_mpi_runtime_follow_from_an_abort() {
    let abort = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n";
    let runtime = "[nodeA:22011] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2198\n";
    let error = "[1,2]<stderr>:Traceback (most recent call last):\n[1,2]<stderr>:  File \"train.py\", line 77, in \
                 <module>\n[1,2]<stderr>:    y = batch[\"labels\"]\n[1,2]<stderr>:KeyError: 'labels'\n";
    assert_eq!(only("run.log", &format!("{error}{abort}{runtime}")).class, "key-error");
    assert_eq!(
        only("run.log", &format!("{abort}{runtime}")).class,
        "launcher-child-failed"
    );
    assert_eq!(only("run.log", runtime).class, "rendezvous-failure");
}

#[test]
fn requests_that_a_server_failed_or_that_clients_left_are_no_failures_of_others() {
    let request =
        |status: &str| format!("INFO:     10.2.0.9:51390 - \"POST /v1/chat/completions HTTP/1.1\" {status}\n");
    let [failed, served] = ["500 Internal Server Error", "200 OK"].map(request);
    assert!(
        diagnose(&[(
            "serve.log",
            &format!("{served}{failed}{served}INFO:     Shutting down\n")
        )])
        .is_empty()
    );
    assert!(diagnose(&[("serve.log", &failed)]).is_empty());
    let left = "INFO 11-30 08:11:12 [async_llm.py:411] Request cmpl-1 aborted.\nConnectionResetError: [Errno 104] Connection \
                reset by peer\n";
    assert!(diagnose(&[("serve.log", &format!("{served}{left}{served}"))]).is_empty());
    let died = "(EngineCore_DP0 pid=312) ERROR 11-30 12:31:07 [multiproc_executor.py:230] Worker proc VllmWorker-2 died \
                unexpectedly, shutting down executor.\n";
    let case = only("serve.log", &format!("{served}{died}{failed}"));
    assert_ne!(case.class, "external-service-unavailable", "{case:?}");
    let hub =
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://hub.example.org/m\n";
    assert_eq!(only("run.log", hub).class, "external-service-unavailable");
}

#[test]
fn an_exit_code_alone_shows_no_rejected_command_line() {
    let case = only("run.log", "srun: error: n1: task 3: Exited with exit code 2\n");
    assert_ne!(case.class, "argparse-error", "{case:?}");
}
