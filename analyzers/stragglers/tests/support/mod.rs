//! Generated training job: a pipeline schedule run by its own rules, with planted slowness.
//!
//! It shares no code with the analysis: times come from walking each worker's schedule, not from a graph.

pub(crate) mod dice;

use dice::Dice;
use rankguard_stragglers::{OpType, TraceOperation};

/// Shape of the job and its planted faults.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) dp: usize,
    pub(crate) pp: usize,
    pub(crate) vpp: usize,
    pub(crate) microbatches: usize,
    pub(crate) steps: usize,
    /// Standard deviation of each pass.
    pub(crate) noise: f64,
    /// `(dp, stage, ratio, every n-th step)`.
    pub(crate) slow_worker: Vec<(usize, usize, f64, usize)>,
    /// `(stage, ratio)`.
    pub(crate) slow_stage: Option<(usize, f64)>,
    /// Deviation of the logarithm of sequence lengths.
    pub(crate) lengths: f64,
    /// `(dp, stage below, seconds)` more for each transfer of that link.
    pub(crate) slow_link: Option<(usize, usize, f64)>,
    /// `(stage, seconds)` more for the gradient exchange of a stage in every second step.
    pub(crate) slow_exchange: Option<(usize, f64)>,
    /// `(dp, stage, seconds)` of waiting before the first forward pass of a step.
    pub(crate) late_start: Option<(usize, usize, f64)>,
    /// `(probability, ratio)` of a stalled forward pass.
    pub(crate) stalls: Option<(f64, f64)>,
}

impl Plan {
    pub(crate) fn healthy(seed: u64, dp: usize, pp: usize, vpp: usize, microbatches: usize) -> Plan {
        Plan {
            seed,
            dp,
            pp,
            vpp,
            microbatches,
            steps: 12,
            noise: 0.02,
            slow_worker: Vec::new(),
            slow_stage: None,
            lengths: 0.0,
            slow_link: None,
            slow_exchange: None,
            late_start: None,
            stalls: None,
        }
    }

    /// Returns the trace of the job.
    pub(crate) fn run(&self) -> Vec<TraceOperation> {
        let mut dice = Dice(self.seed);
        (0..self.steps).flat_map(|step| self.step(step, &mut dice)).collect()
    }

    /// Passes of a stage in order: `(backward, chunk, microbatch)`; one-forward-one-backward, interleaved if there are
    /// chunks.
    fn schedule(&self, stage: usize) -> Vec<(bool, usize, usize)> {
        let (pp, vpp, all) = (self.pp, self.vpp, self.microbatches * self.vpp);
        let pass = |k: usize, backward: bool| {
            let group = k / (pp * vpp);
            let inside = k % (pp * vpp);
            let (chunk, microbatch) = match vpp {
                1 => (0, k),
                _ => (inside / pp, group * pp + inside % pp),
            };
            (backward, if backward { vpp - 1 - chunk } else { chunk }, microbatch)
        };
        let warm = match vpp {
            1 => (pp - stage - 1).min(all),
            _ => ((pp - stage - 1) * 2 + (vpp - 1) * pp).min(all),
        };
        let mut order: Vec<_> = (0..warm).map(|k| pass(k, false)).collect();
        for k in warm..all {
            order.push(pass(k, false));
            order.push(pass(k - warm, true));
        }
        order.extend((all - warm..all).map(|k| pass(k, true)));
        order
    }

    fn step(&self, step: usize, dice: &mut Dice) -> Vec<TraceOperation> {
        let mut book = Book {
            rows: Vec::new(),
            step,
            pp: self.pp,
        };
        let lengths: Vec<Vec<f64>> = (0..self.dp)
            .map(|_| {
                (0..self.microbatches)
                    .map(|_| (self.lengths * dice.normal()).exp())
                    .collect()
            })
            .collect();
        let mut done: Vec<Vec<f64>> = (0..self.dp)
            .map(|dp| self.pipeline(step, dp, &lengths[dp], dice, &mut book))
            .collect();
        for (dp, done) in done.iter_mut().enumerate() {
            for (stage, at) in done.iter_mut().enumerate() {
                *at = book.note(dp, stage, OpType::Gc, *at, *at + 1e-5);
                *at = book.note(dp, stage, OpType::LayernormGradsAllReduce, *at, *at + 1e-3);
            }
            let ends: Vec<usize> = if self.pp > 1 { vec![0, self.pp - 1] } else { vec![0] };
            let start = ends.iter().map(|stage| done[*stage]).fold(0.0, f64::max);
            for stage in ends {
                done[stage] = book.note(dp, stage, OpType::EmbeddingGradsAllReduce, done[stage], start + 0.01);
            }
        }
        for stage in 0..self.pp {
            let start = (0..self.dp).map(|dp| done[dp][stage]).fold(0.0, f64::max);
            let more = self
                .slow_exchange
                .filter(|(slow, _)| *slow == stage && step % 2 == 1)
                .map_or(0.0, |(_, s)| s);
            for done in done.iter_mut().enumerate().map(|(dp, done)| (dp, &mut done[stage])) {
                *done.1 = book.note(done.0, stage, OpType::GradsReduceScatter, *done.1, start + 0.05 + more);
            }
        }
        let start = done.iter().flatten().copied().fold(0.0, f64::max);
        for (dp, done) in done.iter().enumerate() {
            for (stage, at) in done.iter().enumerate() {
                let at = book.note(dp, stage, OpType::OptimizerClipMainGrad, *at, start + 2e-3);
                book.note(dp, stage, OpType::Optimizer, at, at + 0.02);
            }
        }
        book.rows
    }

    /// Runs the passes of one pipeline; returns when each stage is done.
    fn pipeline(&self, step: usize, dp: usize, lengths: &[f64], dice: &mut Dice, book: &mut Book) -> Vec<f64> {
        let pp = self.pp;
        let vpp = self.vpp;
        let last_chunk = pp * vpp - 1;
        let schedules: Vec<_> = (0..pp).map(|stage| self.schedule(stage)).collect();
        let mut next = vec![0; pp];
        let mut free = vec![0.0; pp];
        // End of each pass: [backward][global chunk][microbatch].
        let mut ends = vec![vec![vec![None; self.microbatches]; pp * vpp]; 2];
        // Per stage and direction: end of the last pass of that direction, of the last receive, of the last send.
        let mut passed = vec![[0.0; 2]; pp];
        let mut received = vec![[0.0; 2]; pp];
        let mut sent = vec![[0.0; 2]; pp];
        let mut posted = vec![0.0; pp];
        for (stage, free) in free.iter_mut().enumerate() {
            *free = book.note_chunk(dp, stage, OpType::ParamsAllGather, (0.0, 0.03), 0, None);
        }
        while (0..pp).any(|stage| next[stage] < schedules[stage].len()) {
            let mut moved = false;
            for stage in 0..pp {
                let Some((backward, chunk, microbatch)) = schedules[stage].get(next[stage]).copied() else {
                    continue;
                };
                let global = chunk * pp + stage;
                let way = usize::from(backward);
                let source = match backward {
                    false => global.checked_sub(1).map(|g| (0, g)),
                    true if global == last_chunk => None,
                    true => Some((1, global + 1)),
                };
                let kinds = [
                    (OpType::ForwardSend, OpType::ForwardRecv),
                    (OpType::BackwardSend, OpType::BackwardRecv),
                ];
                let (send, receive) = kinds[way];
                if let Some((from, above)) = source
                    && ends[from][above][microbatch].is_none()
                {
                    continue;
                }
                // A profiler with interleaved chunks also records receives and sends that never happen.
                let first_of_way = !schedules[stage][..next[stage]].iter().any(|(b, ..)| *b == backward);
                let post = if backward && first_of_way {
                    posted[stage]
                } else {
                    passed[stage][way]
                };
                let post = f64::max(post, received[stage][way]);
                let mut ready: f64 = free[stage];
                match source {
                    Some((from, above)) => {
                        let peer = above % pp;
                        let sending = f64::max(ends[from][above][microbatch].unwrap_or(0.0), sent[peer][way]);
                        let below = stage.min(peer);
                        let more = self
                            .slow_link
                            .filter(|(d, s, _)| (*d, *s) == (dp, below))
                            .map_or(0.0, |(.., s)| s);
                        let end = sending.max(post) + 2e-3 + more + 1e-4 * dice.uniform();
                        sent[peer][way] = book.note(dp, peer, send, sending, end);
                        received[stage][way] = book.note(dp, stage, receive, post, end);
                        ready = ready.max(end);
                    }
                    None if vpp > 1 && (backward || !first_of_way) => {
                        received[stage][way] = book.note(dp, stage, receive, post, post);
                    }
                    None => {}
                }
                if next[stage] == 0 {
                    ready += self
                        .late_start
                        .filter(|(d, s, _)| (*d, *s) == (dp, stage))
                        .map_or(0.0, |(.., s)| s);
                }
                let usual = [0.1, 0.2][way] / vpp as f64;
                let worker = self
                    .slow_worker
                    .iter()
                    .filter(|(d, s, _, n)| (*d, *s) == (dp, stage) && step.is_multiple_of(*n));
                let worker: f64 = worker.map(|(_, _, ratio, _)| ratio).product();
                let larger = self
                    .slow_stage
                    .filter(|(slow, _)| *slow == stage)
                    .map_or(1.0, |(_, ratio)| ratio);
                let stall = match self.stalls {
                    Some((chance, ratio)) if !backward && dice.uniform() < chance => ratio,
                    _ => 1.0,
                };
                let noise = (1.0 + self.noise * dice.normal()).max(0.1);
                // Attention grows with the length of sequences, more so backward; what a stage has beyond its layers
                // (the loss over a fixed number of tokens) does not.
                let layers = lengths[microbatch].powf([1.0, 1.15][way]);
                let end = ready + usual * worker * stall * noise * (layers + larger - 1.0);
                let kind = if backward {
                    OpType::BackwardCompute
                } else {
                    OpType::ForwardCompute
                };
                book.note_chunk(dp, stage, kind, (ready, end), chunk, Some(microbatch));
                ends[way][global][microbatch] = Some(end);
                let no_peer = if backward { global == 0 } else { global == last_chunk };
                if no_peer && vpp > 1 {
                    book.note(dp, stage, send, end, end);
                }
                (free[stage], passed[stage][way]) = (end, end);
                // The first backward receive is posted when the second last warm-up pass is done.
                let first_backward = schedules[stage].iter().position(|(backward, ..)| *backward);
                if first_backward == Some(next[stage] + 2) {
                    posted[stage] = end;
                }
                next[stage] += 1;
                moved = true;
            }
            assert!(moved, "the schedule waits for itself");
        }
        free
    }
}

/// The rows of a step as a profiler writes them.
struct Book {
    rows: Vec<TraceOperation>,
    step: usize,
    pp: usize,
}

impl Book {
    fn note(&mut self, dp: usize, stage: usize, kind: OpType, start: f64, end: f64) -> f64 {
        let chunk = kind == OpType::GradsReduceScatter;
        self.add(dp, stage, kind, (start, end), chunk.then_some(0), None)
    }

    fn note_chunk(
        &mut self,
        dp: usize,
        stage: usize,
        kind: OpType,
        (start, end): (f64, f64),
        chunk: usize,
        microbatch: Option<usize>,
    ) -> f64 {
        self.add(dp, stage, kind, (start, end), Some(chunk), microbatch)
    }

    fn add(
        &mut self,
        dp: usize,
        stage: usize,
        kind: OpType,
        (start, end): (f64, f64),
        chunk: Option<usize>,
        microbatch: Option<usize>,
    ) -> f64 {
        self.rows.push(TraceOperation {
            dp_rank: dp as i64,
            stage: stage as i64,
            rank: Some((dp * self.pp + stage) as i64),
            step: self.step as i64,
            kind,
            start,
            duration: end - start,
            end,
            // Numbered by start: left to the reader.
            seq: None,
            chunk: chunk.map(|chunk| chunk as i64),
            microbatch: microbatch.map(|microbatch| microbatch as i64),
            global_chunk: microbatch.and(chunk).map(|chunk| (chunk * self.pp + stage) as i64),
        });
        end
    }
}
