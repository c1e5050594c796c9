//! The words of a trace: operations of one training step, and per-step timings of a rank.

use serde::Serialize;

/// What an operation does. The order is that of the names, which breaks ties between operations of one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpType {
    /// Backward pass of one microbatch through one model chunk.
    BackwardCompute,
    /// Takes the gradient of activations from the next chunk.
    BackwardRecv,
    /// Gives the gradient of activations to the chunk before.
    BackwardSend,
    /// Sums gradients of tied embeddings between the first and the last stage.
    EmbeddingGradsAllReduce,
    /// Forward pass of one microbatch through one model chunk.
    ForwardCompute,
    /// Takes activations from the chunk before.
    ForwardRecv,
    /// Gives activations to the next chunk.
    ForwardSend,
    /// Planned garbage collection between backward pass and gradient exchange.
    Gc,
    /// Gradient exchange among data-parallel ranks.
    GradsReduceScatter,
    /// Sums layer-norm gradients inside a tensor-parallel group.
    LayernormGradsAllReduce,
    /// The optimizer's own step, last of the step.
    Optimizer,
    /// Global gradient norm: every rank waits for every other.
    OptimizerClipMainGrad,
    /// Parameter exchange among data-parallel ranks.
    ParamsAllGather,
    /// Gradients exchanged apart from the overlapped ones.
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

    /// The name in traces.
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

    /// The type of that name.
    pub fn named(name: &str) -> Option<OpType> {
        OpType::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Forward or backward pass.
    pub(crate) fn is_pass(self) -> bool {
        matches!(self, OpType::ForwardCompute | OpType::BackwardCompute)
    }

    /// Send or receive between pipeline stages.
    pub(crate) fn is_p2p(self) -> bool {
        matches!(
            self,
            OpType::ForwardSend | OpType::ForwardRecv | OpType::BackwardSend | OpType::BackwardRecv
        )
    }

    /// Exchange among data-parallel ranks.
    pub(crate) fn is_dp(self) -> bool {
        matches!(
            self,
            OpType::ParamsAllGather | OpType::GradsReduceScatter | OpType::SeparateGradsAllReduce
        )
    }

    /// Communication by nature: its ordinary duration is the median, not the mean, for one retransmission would move a
    /// mean. The simulation's own notion (who waits for whom) is narrower: see `graph`.
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
pub struct Operation {
    /// Data-parallel rank.
    pub dp_rank: i64,
    /// Pipeline stage.
    pub stage: i64,
    /// Rank of the worker, where known.
    pub rank: Option<i64>,
    /// Training step.
    pub step: i64,
    /// What it does.
    pub kind: OpType,
    /// Start, seconds, on a clock that the ranks of a step share.
    pub start: f64,
    /// Duration, seconds, waiting for peers included.
    pub duration: f64,
    /// End, seconds: in the precision of the source, as its authors add it up.
    pub end: f64,
    /// Place among the operations of this type, worker and step, by start.
    pub seq: Option<i64>,
    /// Model chunk inside the stage.
    pub chunk: Option<i64>,
    /// Microbatch.
    pub microbatch: Option<i64>,
    /// Model chunk inside the model.
    pub global_chunk: Option<i64>,
}

/// One step of one rank, as a training loop can log it without a profiler.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTiming {
    /// Rank.
    pub rank: i64,
    /// Pipeline stage, where known: ranks are compared inside their stage.
    pub stage: Option<i64>,
    /// Training step.
    pub step: i64,
    /// Wall time of the step, seconds.
    pub duration: f64,
    /// Time in the rank's own computation, seconds.
    pub compute: Option<f64>,
    /// Time in communication, seconds, waiting for peers included.
    pub communication: Option<f64>,
    /// Time waiting for the data loader, seconds.
    pub data: Option<f64>,
    /// Tokens this rank worked on.
    pub tokens: Option<f64>,
}

/// What a timing file held.
#[derive(Debug, Clone, PartialEq)]
pub enum Timings {
    /// Operations: the what-if simulation can be run.
    Operations(Vec<Operation>),
    /// One row a rank and step: robust outliers only.
    Steps(Vec<StepTiming>),
}
