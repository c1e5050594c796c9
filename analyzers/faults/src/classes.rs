//! Ids of the catalogue's failure classes, for code that treats a class specially.
//!
//! Generated from `data/classes.toml`; to write it again: `RANKGUARD_BLESS=1 cargo test -p rankguard-faults --test
//! classes`.

/// The program does not accept its command line.
pub const ARGPARSE_ERROR: &str = "argparse-error";

/// The program refuses its arguments or configuration.
pub const ARGUMENT_OR_CONFIG_INVALID: &str = "argument-or-config-invalid";

/// An assertion of program or framework does not hold.
pub const ASSERTION_ERROR: &str = "assertion-error";

/// An object has no such attribute.
pub const ATTRIBUTE_ERROR: &str = "attribute-error";

/// The backward pass is impossible: no gradient, in-place change, or graph used twice.
pub const AUTOGRAD_ERROR: &str = "autograd-error";

/// One sample of otherwise good data breaks the run.
pub const BAD_SAMPLE: &str = "bad-sample";

/// A checkpoint is truncated, incomplete or unreadable.
pub const CHECKPOINT_CORRUPT: &str = "checkpoint-corrupt";

/// Checkpoint and model do not fit: keys, sizes, optimiser state or class.
pub const CHECKPOINT_MISMATCH: &str = "checkpoint-mismatch";

/// Saving a checkpoint failed or stayed incomplete.
pub const CHECKPOINT_WRITE_FAILURE: &str = "checkpoint-write-failure";

/// Clocks of nodes disagree or jump.
pub const CLOCK_SKEW: &str = "clock-skew";

/// A collective refuses its argument: layout, type or device.
pub const COLLECTIVE_ARGUMENT_ERROR: &str = "collective-argument-error";

/// Ranks issue different collectives, sizes or numbers of collectives.
pub const COLLECTIVE_MISMATCH: &str = "collective-mismatch";

/// A configuration value, name or combination is wrong.
pub const CONFIG_ERROR: &str = "config-error";

/// A connection to a peer or service cannot be made or does not last, for a reason that the log does not give.
pub const CONNECTION_FAILED: &str = "connection-failed";

/// A peer refuses the connection: nothing listens there.
pub const CONNECTION_REFUSED: &str = "connection-refused";

/// An established connection broke.
pub const CONNECTION_RESET: &str = "connection-reset";

/// A connection or request got no answer in time.
pub const CONNECTION_TIMEOUT: &str = "connection-timeout";

/// A container exceeded its memory limit and was killed.
pub const CONTAINER_OOM_KILL: &str = "container-oom-kill";

/// The container runtime or its GPU hook cannot create the container.
pub const CONTAINER_RUNTIME_ERROR: &str = "container-runtime-error";

/// The container starts and ends at once, or is restarted again and again.
pub const CONTAINER_START_ERROR: &str = "container-start-error";

/// The container cannot be created or does not stay up.
pub const CONTAINER_START_FAILURE: &str = "container-start-failure";

/// The scheduler's or the cluster's control plane fails to answer.
pub const CONTROL_PLANE_ERROR: &str = "control-plane-error";

/// The processor reports an error of its own (machine check).
pub const CPU_HARDWARE_ERROR: &str = "cpu-hardware-error";

/// A processor of the node is stuck in the kernel (soft or hard lockup, RCU stall).
pub const CPU_LOCKUP: &str = "cpu-lockup";

/// A cuBLAS call fails.
pub const CUBLAS_FAILURE: &str = "cublas-failure";

/// An assertion inside a kernel failed, as a rule an index or label out of range.
pub const CUDA_DEVICE_ASSERT: &str = "cuda-device-assert";

/// A CUDA call or a library on top of it failed, and the message gives no reason.
pub const CUDA_ERROR_UNSPECIFIED: &str = "cuda-error-unspecified";

/// A kernel touched device memory that it may not touch.
pub const CUDA_ILLEGAL_MEMORY_ACCESS: &str = "cuda-illegal-memory-access";

/// The program uses a device number that does not exist.
pub const CUDA_INVALID_DEVICE_ORDINAL: &str = "cuda-invalid-device-ordinal";

/// A CUDA call or kernel failed with an error that no other class covers, often without a stated reason.
pub const CUDA_LAUNCH_FAILURE: &str = "cuda-launch-failure";

/// The binary holds no kernel for the architecture of this GPU.
pub const CUDA_NO_KERNEL_IMAGE: &str = "cuda-no-kernel-image";

/// The job used up the memory of its GPU.
pub const CUDA_OOM: &str = "cuda-oom";

/// GPU driver, CUDA runtime and the build of the program do not fit together.
pub const CUDA_VERSION_MISMATCH: &str = "cuda-version-mismatch";

/// A cuDNN call fails or the library cannot be initialised.
pub const CUDNN_FAILURE: &str = "cudnn-failure";

/// Input data are damaged, malformed or inconsistent.
pub const DATA_CORRUPT: &str = "data-corrupt";

/// Text is in an encoding that the program does not expect.
pub const DATA_ENCODING_ERROR: &str = "data-encoding-error";

/// Labels of the data are out of range or wrong.
pub const DATA_LABEL_ERROR: &str = "data-label-error";

/// Files, data sets or job history that were there have disappeared.
pub const DATA_LOSS: &str = "data-loss";

/// Data files that the data set refers to are absent, or the data set is empty.
pub const DATA_MISSING: &str = "data-missing";

/// A data loading worker was killed or died.
pub const DATALOADER_KILLED: &str = "dataloader-killed";

/// Data loading workers ended unexpectedly without a recorded reason.
pub const DATALOADER_WORKER_CRASH: &str = "dataloader-worker-crash";

/// Data-parallel reduction finds parameters that took no part in the loss.
pub const DDP_UNUSED_PARAMETERS: &str = "ddp-unused-parameters";

/// Operands live on different devices.
pub const DEVICE_MISMATCH: &str = "device-mismatch";

/// A disk or a quota is used up.
pub const DISK_FULL: &str = "disk-full";

/// A host name cannot be resolved.
pub const DNS_FAILURE: &str = "dns-failure";

/// Kernel module and user libraries of the GPU driver differ, or the driver is too old for the CUDA runtime.
pub const DRIVER_VERSION_MISMATCH: &str = "driver-version-mismatch";

/// Element types of operands do not fit.
pub const DTYPE_MISMATCH: &str = "dtype-mismatch";

/// Shell, module or conda environment of the job is not set up.
pub const ENVIRONMENT_SETUP_ERROR: &str = "environment-setup-error";

/// The management network or a service of it, such as name resolution, fails.
pub const ETHERNET_FAULT: &str = "ethernet-fault";

/// A node reported something that contradicts what the controller planned or ordered: a rank, device or job of other
/// nodes, an answer to no order, an impossible step.
pub const EVIDENCE_REFUSED: &str = "evidence-refused";

/// A service outside the cluster does not answer or answers with an error.
pub const EXTERNAL_SERVICE_UNAVAILABLE: &str = "external-service-unavailable";

/// The process was ended from outside and had no fault itself.
pub const EXTERNAL_TERMINATION: &str = "external-termination";

/// The GPU fabric is not initialised, so CUDA refuses to start (error 802).
pub const FABRIC_MANAGER_NOT_READY: &str = "fabric-manager-not-ready";

/// A file or directory that the job opens does not exist.
pub const FILE_NOT_FOUND: &str = "file-not-found";

/// A file system does not answer; tasks hang in it.
pub const FILESYSTEM_HANG: &str = "filesystem-hang";

/// A file system is mounted, but operations on it fail or do not end.
pub const FILESYSTEM_IO_ERROR: &str = "filesystem-io-error";

/// A file system cannot be mounted or is not mounted.
pub const FILESYSTEM_MOUNT_FAILURE: &str = "filesystem-mount-failure";

/// A shared file system or volume is not mounted where the job needs it.
pub const FILESYSTEM_MOUNT_MISSING: &str = "filesystem-mount-missing";

/// A framework call is used against its contract.
pub const FRAMEWORK_API_MISUSE: &str = "framework-api-misuse";

/// A defect of framework or launcher.
pub const FRAMEWORK_BUG: &str = "framework-bug";

/// Framework, library or native code of the job ended a process; the cause inside is not established.
pub const FRAMEWORK_CRASH: &str = "framework-crash";

/// The GPU's kernel driver or its firmware misbehaves or cannot be loaded.
pub const GPU_DRIVER_FAULT: &str = "gpu-driver-fault";

/// An uncorrectable error of GPU memory that the hardware confined to the process that used the memory (XID 94).
pub const GPU_ECC_CONTAINED: &str = "gpu-ecc-contained";

/// Corrected memory errors come so often that the memory is about to fail.
pub const GPU_ECC_DEGRADING: &str = "gpu-ecc-degrading";

/// Device memory has an error that ECC cannot correct and that the hardware did not confine to one process (XID 48,
/// 95).
pub const GPU_ECC_UNCORRECTABLE: &str = "gpu-ecc-uncorrectable";

/// The kernel log shows an exception of a compute engine or of the GPU's memory unit; as a rule the program on the GPU
/// caused it.
pub const GPU_ENGINE_EXCEPTION: &str = "gpu-engine-exception";

/// A GPU no longer answers on the PCIe bus.
pub const GPU_FALLEN_OFF_BUS: &str = "gpu-fallen-off-bus";

/// The system processor of the GPU does not answer the driver, or crashed.
pub const GPU_GSP_TIMEOUT: &str = "gpu-gsp-timeout";

/// A fault inside the GPU that the application did not cause: a halted micro-controller or engine.
pub const GPU_INTERNAL_FAULT: &str = "gpu-internal-fault";

/// The process sees no GPU although one was expected.
pub const GPU_NOT_VISIBLE: &str = "gpu-not-visible";

/// A link between GPUs fails or cannot be trained.
pub const GPU_NVLINK_ERROR: &str = "gpu-nvlink-error";

/// The driver names the recovery that the GPU needs (reset, drain, reboot).
pub const GPU_RECOVERY_ACTION: &str = "gpu-recovery-action";

/// A faulty memory row could not be replaced: no spare row is left, or the table could not be written.
pub const GPU_ROW_REMAP_FAILURE: &str = "gpu-row-remap-failure";

/// A memory row is marked to be replaced by a spare row; it takes effect at the next reset.
pub const GPU_ROW_REMAP_PENDING: &str = "gpu-row-remap-pending";

/// A GPU is too hot and slows down or stops, or its cooling fails.
pub const GPU_THERMAL: &str = "gpu-thermal";

/// An allocated GPU is missing, cannot be opened or cannot be initialised at job start.
pub const GPU_UNAVAILABLE: &str = "gpu-unavailable";

/// Mixed precision overflows at every step; the loss scale falls to its floor.
pub const GRAD_OVERFLOW_SCALE_FLOOR: &str = "grad-overflow-scale-floor";

/// The job makes no progress and nothing reports an error.
pub const HANG_NO_ERROR: &str = "hang-no-error";

/// Some ranks wait for ranks that did not reach the collective, and the log names them.
pub const HANG_STALLED_RANKS: &str = "hang-stalled-ranks";

/// A collective timed out on Ascend NPUs.
pub const HCCL_TIMEOUT: &str = "hccl-timeout";

/// The processor or the memory of a host reports errors that were not corrected.
pub const HOST_CPU_OR_MEMORY_ERROR: &str = "host-cpu-or-memory-error";

/// Errors of host memory that ECC corrected: no data were lost.
pub const HOST_MEMORY_CORRECTED_ERRORS: &str = "host-memory-corrected-errors";

/// Host memory is defective: uncorrectable errors or corrupted pages.
pub const HOST_MEMORY_FAULT: &str = "host-memory-fault";

/// An allocation of host memory failed inside the process.
pub const HOST_OOM_ALLOC: &str = "host-oom-alloc";

/// The kernel or the scheduler killed a process because the memory of the host, or the limit of the process's memory
/// cgroup, was used up.
pub const HOST_OOM_KILL: &str = "host-oom-kill";

/// A processor or the chassis of a host is too hot and slows down or stops, or its cooling fails.
pub const HOST_THERMAL: &str = "host-thermal";

/// A task waits in the kernel for longer than its limit (uninterruptible sleep).
pub const HUNG_TASK: &str = "hung-task";

/// An RDMA operation on InfiniBand or RoCE failed (work completion, queue pair or memory registration error).
pub const IB_RDMA_ERROR: &str = "ib-rdma-error";

/// A Python module or a name in it cannot be imported.
pub const IMPORT_ERROR: &str = "import-error";

/// The submission is refused because its description is invalid.
pub const INVALID_JOB_SPEC: &str = "invalid-job-spec";

/// A user or an operator cancelled the job.
pub const JOB_CANCELLED: &str = "job-cancelled";

/// The job, or a task of it, waits and does not go on; what it waits for is not established.
pub const JOB_HANG: &str = "job-hang";

/// A container image cannot be pulled.
pub const K8S_IMAGE_PULL: &str = "k8s-image-pull";

/// No node fits the request; the pod or job stays pending.
pub const K8S_UNSCHEDULABLE: &str = "k8s-unschedulable";

/// A volume claim is not bound, or a volume cannot be attached or mounted.
pub const K8S_VOLUME_UNBOUND: &str = "k8s-volume-unbound";

/// The operating-system kernel panicked or hit an oops.
pub const KERNEL_CRASH: &str = "kernel-crash";

/// A key is absent from a mapping.
pub const KEY_ERROR: &str = "key-error";

/// A process was ended by a signal of an unknown sender.
pub const KILLED_BY_SIGNAL: &str = "killed-by-signal";

/// The launcher reports that one of its processes failed; the cause is in that process.
pub const LAUNCHER_CHILD_FAILED: &str = "launcher-child-failed";

/// A node whose jobs fail again and again although each event alone passes the health checks.
pub const LEMON_NODE: &str = "lemon-node";

/// Installed libraries do not fit together, or one is broken.
pub const LIBRARY_INCOMPATIBLE: &str = "library-incompatible";

/// A shared library or operator package cannot be found or loaded.
pub const LIBRARY_MISSING: &str = "library-missing";

/// A local disk or its controller fails.
pub const LOCAL_DISK_FAULT: &str = "local-disk-fault";

/// Loss, gradient or activation is not a number or infinite.
pub const LOSS_NAN: &str = "loss-nan";

/// Loss or gradient norm jumps and may not return.
pub const LOSS_SPIKE: &str = "loss-spike";

/// Planned or urgent maintenance takes nodes away.
pub const MAINTENANCE: &str = "maintenance";

/// A memory fault inside MPI or UCX.
pub const MPI_UCX_SEGFAULT: &str = "mpi-ucx-segfault";

/// NCCL reports an unhandled CUDA error.
pub const NCCL_CUDA_ERROR: &str = "nccl-cuda-error";

/// NCCL reports invalid usage, such as two ranks on one GPU.
pub const NCCL_INVALID_USAGE: &str = "nccl-invalid-usage";

/// NCCL's network plug-in is missing or does not fit driver or library.
pub const NCCL_NET_PLUGIN_ERROR: &str = "nccl-net-plugin-error";

/// NCCL or Gloo finds no usable network interface.
pub const NCCL_NO_INTERFACE: &str = "nccl-no-interface";

/// The mappings for peer-to-peer access between GPUs are used up.
pub const NCCL_P2P_RESOURCES: &str = "nccl-p2p-resources";

/// A communication call failed because of the other side or the way to it; the survivor reports it.
pub const NCCL_REMOTE_ERROR: &str = "nccl-remote-error";

/// NCCL reports an unhandled system error: a socket, shared memory or verbs call failed.
pub const NCCL_SYSTEM_ERROR: &str = "nccl-system-error";

/// A collective exceeded its time limit; what held it up is not established.
pub const NCCL_TIMEOUT: &str = "nccl-timeout";

/// Packets arrive corrupt, or of a kind that is not expected, on the interconnect.
pub const NETWORK_PACKET_ERROR: &str = "network-packet-error";

/// The training network works, but far below its nominal rate.
pub const NETWORK_SLOW: &str = "network-slow";

/// A host or a network cannot be reached.
pub const NETWORK_UNREACHABLE: &str = "network-unreachable";

/// A network adapter, its port or its transceiver fails.
pub const NIC_FAULT: &str = "nic-fault";

/// A port of the training network lost its link.
pub const NIC_LINK_DOWN: &str = "nic-link-down";

/// A port loses its link and gets it back, again and again.
pub const NIC_LINK_FLAP: &str = "nic-link-flap";

/// The agent of a node fell silent beyond the limit, and its ranks with it.
pub const NODE_AGENT_SILENT: &str = "node-agent-silent";

/// A node died, rebooted or was lost, for a fault in any of its parts.
pub const NODE_CRASH: &str = "node-crash";

/// A host is broken for good: chassis, motherboard, riser or another part must be repaired.
pub const NODE_DAMAGE: &str = "node-damage";

/// No failure: a harmless warning, a retry that succeeded, or noise after success.
pub const NONE: &str = "none";

/// An operation is not implemented or not supported here.
pub const NOT_IMPLEMENTED: &str = "not-implemented";

/// An arithmetic error: division by zero, overflow, floating-point exception.
pub const NUMERICAL_ERROR: &str = "numerical-error";

/// A link between GPUs, or the switch behind it, inside the node or rack is at fault; the log does not name the end.
pub const NVLINK_ERROR: &str = "nvlink-error";

/// A switch of the GPU fabric reports an error.
pub const NVSWITCH_ERROR: &str = "nvswitch-error";

/// Object storage or a distributed file service answers with errors.
pub const OBJECT_STORAGE_ERROR: &str = "object-storage-error";

/// A path that the job needs does not exist where it runs.
pub const PATH_NOT_FOUND: &str = "path-not-found";

/// Corrected errors on a PCIe link: data were sent again.
pub const PCIE_CORRECTED_ERRORS: &str = "pcie-corrected-errors";

/// Uncorrected errors on the PCIe path between host and device.
pub const PCIE_ERROR: &str = "pcie-error";

/// A PCIe link runs with fewer lanes or slower than it could.
pub const PCIE_LINK_DEGRADED: &str = "pcie-link-degraded";

/// The job may not read or write something: it lacks the right, or the file system is read-only.
pub const PERMISSION_DENIED: &str = "permission-denied";

/// A bug or a wrong setting of the platform itself breaks jobs.
pub const PLATFORM_DEFECT: &str = "platform-defect";

/// A new release of a platform component breaks jobs that worked before.
pub const PLATFORM_REGRESSION: &str = "platform-regression";

/// A shared service of the platform, or a whole cluster, is unavailable for a while.
pub const PLATFORM_SERVICE_OUTAGE: &str = "platform-service-outage";

/// The platform stopped the job because it broke a rule of use.
pub const POLICY_VIOLATION: &str = "policy-violation";

/// The port on which the job listens is taken.
pub const PORT_IN_USE: &str = "port-in-use";

/// A GPU or host lacks power: supply, cable or power brake.
pub const POWER_FAULT: &str = "power-fault";

/// The job was evicted for one with higher priority, or its spot node was taken back.
pub const PREEMPTED: &str = "preempted";

/// A process ended itself (abort, uncaught native exception, illegal instruction).
pub const PROCESS_ABORTED: &str = "process-aborted";

/// A sequence was indexed outside its bounds.
pub const PYTHON_INDEX_ERROR: &str = "python-index-error";

/// A name is used that was never bound.
pub const PYTHON_NAME_ERROR: &str = "python-name-error";

/// A missing value (None) is used as if it were an object.
pub const PYTHON_NONE_DEREFERENCE: &str = "python-none-dereference";

/// The program text does not parse.
pub const PYTHON_SYNTAX_ERROR: &str = "python-syntax-error";

/// A call got a value outside its domain.
pub const PYTHON_VALUE_ERROR: &str = "python-value-error";

/// The request exceeds a quota of queue or account.
pub const QUOTA_EXCEEDED: &str = "quota-exceeded";

/// Ranks race on the same file or directory.
pub const RACE_ON_SHARED_FILESYSTEM: &str = "race-on-shared-filesystem";

/// A rank ended with an exit code and left no message that explains it.
pub const RANK_EXIT_UNKNOWN: &str = "rank-exit-unknown";

/// A peer process or node vanished; the message is a survivor's.
pub const REMOTE_WORKER_LOST: &str = "remote-worker-lost";

/// The job cannot form its group: the store or rendezvous timed out, closed or cannot be reached.
pub const RENDEZVOUS_FAILURE: &str = "rendezvous-failure";

/// A shared resource of the node is used up: processes, memory locks, connections, or the pod was evicted for it.
pub const RESOURCE_CONTENTION: &str = "resource-contention";

/// The scheduler's own configuration does not fit its nodes, or its daemons cannot use it.
pub const SCHEDULER_MISCONFIGURED: &str = "scheduler-misconfigured";

/// A process ended with a memory fault and nothing more specific is known.
pub const SEGFAULT: &str = "segfault";

/// /dev/shm is too small; data workers die with a bus error.
pub const SHM_EXHAUSTED: &str = "shm-exhausted";

/// Parts that must compute the same result do not, and nothing reports an error.
pub const SILENT_DATA_CORRUPTION: &str = "silent-data-corruption";

/// The scheduler reports the failure of a node of the job.
pub const SLURM_NODE_FAIL: &str = "slurm-node-fail";

/// The job reached its time limit.
pub const SLURM_TIME_LIMIT: &str = "slurm-time-limit";

/// The launcher cannot start processes over SSH.
pub const SSH_FAILURE: &str = "ssh-failure";

/// Reads or writes of a file system or disk fail.
pub const STORAGE_IO_ERROR: &str = "storage-io-error";

/// One node or rank is much slower than the others, with no error as such.
pub const STRAGGLER: &str = "straggler";

/// A child process ended with failure; its own output holds the reason.
pub const SUBPROCESS_FAILED: &str = "subprocess-failed";

/// Shapes of tensors or layers do not fit.
pub const TENSOR_SHAPE_MISMATCH: &str = "tensor-shape-mismatch";

/// A TLS handshake with a service fails.
pub const TLS_FAILURE: &str = "tls-failure";

/// The limit of open files or of file watchers is reached.
pub const TOO_MANY_OPEN_FILES: &str = "too-many-open-files";

/// A value of the wrong type is used.
pub const TYPE_ERROR: &str = "type-error";

/// The program ended with an error of its own that fits no other class.
pub const UNCAUGHT_EXCEPTION: &str = "uncaught-exception";

/// Something failed and nothing that was seen explains it.
pub const UNKNOWN: &str = "unknown";

/// The NVSwitch driver reported an event number that the catalogue does not know.
pub const UNKNOWN_SXID: &str = "unknown-sxid";

/// The GPU driver reported an event number that the catalogue does not know.
pub const UNKNOWN_XID: &str = "unknown-xid";

/// A node cannot resolve the user.
pub const USER_LOOKUP_FAILURE: &str = "user-lookup-failure";

/// Portal, workspace or data were handled wrongly by the user.
pub const USER_MISOPERATION: &str = "user-misoperation";
