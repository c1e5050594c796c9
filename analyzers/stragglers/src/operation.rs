//! Rows of a trace: operations of one training step, and per-step timings of a rank.

use serde::Serialize;

/// Type of an operation. The order is that of the names, which breaks ties between operations with equal start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpType {
    /// Backward pass of one microbatch through one model chunk.
    BackwardCompute,
    /// Receive of the activation gradient from the next chunk.
    BackwardRecv,
    /// Send of the activation gradient to the previous chunk.
    BackwardSend,
    /// Sum of the gradients of tied embeddings over the first and the last stage.
    EmbeddingGradsAllReduce,
    /// Forward pass of one microbatch through one model chunk.
    ForwardCompute,
    /// Receive of activations from the previous chunk.
    ForwardRecv,
    /// Send of activations to the next chunk.
    ForwardSend,
    /// Planned garbage collection between backward pass and gradient exchange.
    Gc,
    /// Gradient exchange among data-parallel ranks.
    GradsReduceScatter,
    /// Sum of layer-norm gradients within a tensor-parallel group.
    LayernormGradsAllReduce,
    /// Step of the optimizer, the last operation.
    Optimizer,
    /// Global gradient norm: every rank waits for every other.
    OptimizerClipMainGrad,
    /// Parameter exchange among data-parallel ranks.
    ParamsAllGather,
    /// Gradient exchange that is not overlapped with passes.
    SeparateGradsAllReduce,
}

impl OpType {
    /// All types, in order of name.
    pub const ALL: [OpType; 14] = [
        OpType::BackwardCompute,
        OpType::BackwardRecv,
        OpType::BackwardSend,
        OpType::EmbeddingGradsAllReduce,
        OpType::ForwardCompute,
        OpType::ForwardRecv,
        OpType::ForwardSend,
        OpType::Gc,
        OpType::GradsReduceScatter,
        OpType::LayernormGradsAllReduce,
        OpType::Optimizer,
        OpType::OptimizerClipMainGrad,
        OpType::ParamsAllGather,
        OpType::SeparateGradsAllReduce,
    ];

    /// Returns the name in traces.
    pub fn name(self) -> &'static str {
        match self {
            OpType::BackwardCompute => "backward-compute",
            OpType::BackwardRecv => "backward-recv",
            OpType::BackwardSend => "backward-send",
            OpType::EmbeddingGradsAllReduce => "embedding-grads-all-reduce",
            OpType::ForwardCompute => "forward-compute",
            OpType::ForwardRecv => "forward-recv",
            OpType::ForwardSend => "forward-send",
            OpType::Gc => "gc",
            OpType::GradsReduceScatter => "grads-reduce-scatter",
            OpType::LayernormGradsAllReduce => "layernorm-grads-all-reduce",
            OpType::Optimizer => "optimizer",
            OpType::OptimizerClipMainGrad => "optimizer-clip-main-grad",
            OpType::ParamsAllGather => "params-all-gather",
            OpType::SeparateGradsAllReduce => "separate-grads-all-reduce",
        }
    }

    /// Returns the type with that name.
    pub fn named(name: &str) -> Option<OpType> {
        OpType::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns true for forward and backward passes.
    pub(crate) fn is_pass(self) -> bool {
        matches!(self, OpType::ForwardCompute | OpType::BackwardCompute)
    }

    /// Returns true for sends and receives between pipeline stages.
    pub(crate) fn is_p2p(self) -> bool {
        matches!(
            self,
            OpType::ForwardSend | OpType::ForwardRecv | OpType::BackwardSend | OpType::BackwardRecv
        )
    }

    /// Returns true for exchanges among data-parallel ranks.
    pub(crate) fn is_dp(self) -> bool {
        matches!(
            self,
            OpType::ParamsAllGather | OpType::GradsReduceScatter | OpType::SeparateGradsAllReduce
        )
    }

    /// Returns true for communication, with the median as ordinary duration, because one retransmission would shift a
    /// mean. The dependency graph uses a narrower notion: see `graph`.
    pub(crate) fn is_communication(self) -> bool {
        self.is_p2p()
            || self.is_dp()
            || matches!(
                self,
                OpType::LayernormGradsAllReduce | OpType::EmbeddingGradsAllReduce | OpType::OptimizerClipMainGrad
            )
    }
}

/// One operation of one pipeline worker in one step.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceOperation {
    pub dp_rank: i64,
    pub stage: i64,
    /// Rank of the worker, where known.
    pub rank: Option<i64>,
    pub step: i64,
    pub kind: OpType,
    /// Start in seconds, on a clock common to the ranks of a step.
    pub start: f64,
    /// Duration in seconds, waiting for peers included.
    pub duration: f64,
    /// End in seconds, in the precision of the source, as its writers add it up.
    pub end: f64,
    /// Position among the operations of this type, worker and step, by start.
    pub seq: Option<i64>,
    /// Model chunk within the stage.
    pub chunk: Option<i64>,
    pub microbatch: Option<i64>,
    /// Model chunk within the model.
    pub global_chunk: Option<i64>,
}

/// One step of one rank, as a training loop can log it without a profiler.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTiming {
    pub rank: i64,
    /// Pipeline stage, where known: ranks are compared within their stage.
    pub stage: Option<i64>,
    pub step: i64,
    /// Wall time of the step in seconds.
    pub duration: f64,
    /// Time in the rank's own computation in seconds.
    pub compute: Option<f64>,
    /// Time in communication in seconds, waiting for peers included.
    pub communication: Option<f64>,
    /// Wait for the data loader in seconds.
    pub data: Option<f64>,
    /// Tokens that this rank processed.
    pub tokens: Option<f64>,
}

/// Content of a timing file.
#[derive(Debug, Clone, PartialEq)]
pub enum TimingFile {
    /// Operations, which permit the what-if simulation.
    Operations(Vec<TraceOperation>),
    /// One row a rank and step, which permits robust outlier detection only.
    Steps(Vec<StepTiming>),
}
