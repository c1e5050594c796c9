//! Computation of one rank: gradients of its virtual ranks, and the update of its shard.

use std::ops::Range;

use rankguard_checkpoint_format::TensorBox;
use rankguard_model::Step;
use rankguard_rank::RestoredTensors;

use crate::adam::AdamState;
use crate::digits::{DigitImages, PIXELS};
use crate::error::FailureCause;
use crate::ledger::SampleLedger;
use crate::mesh::{CollectiveOp, MeshError, RankMesh};
use crate::network::{BatchOutcome, NeuralNetwork, PassBuffers, SampleBatch, SourceFrame};
use crate::random;
use crate::schedule::SampleSchedule;
use crate::settings::TrainingSettings;
use crate::shard::{ParameterShard, read_values, write_values};
use crate::state::TrainerState;

/// Bytes of loss and hits of a piece, which precede its gradient.
const HEAD_BYTES: usize = 12;

/// Training state of a rank.
pub(crate) struct RankTrainer<'a> {
    settings: &'a TrainingSettings,
    pub(crate) schedule: SampleSchedule,
    network: NeuralNetwork,
    digits: DigitImages,
    /// Shards by rank.
    shards: Vec<ParameterShard>,
    rank: usize,
    /// Parameters of all ranks, for the forward pass.
    pub(crate) parameters: Vec<f32>,
    /// Parameters of this rank's shard, which only this rank changes.
    owned: Vec<f32>,
    adam: AdamState,
    /// Number of completed steps.
    pub(crate) step: u64,
    pub(crate) ledger: SampleLedger,
    /// Epoch, and its sample order.
    order: (u64, Vec<u32>),
    scratch: PassBuffers,
    gradient: Vec<f32>,
}

impl<'a> RankTrainer<'a> {
    /// Creates the state of a rank before its first step.
    pub(crate) fn new(settings: &'a TrainingSettings, digits: DigitImages, rank: usize, world_size: usize) -> Self {
        let network = NeuralNetwork::new(settings.widths());
        let schedule = SampleSchedule {
            samples: digits.len(),
            batch: settings.batch,
            epochs: settings.epochs,
            virtual_ranks: settings.virtual_ranks,
        };
        let shards: Vec<ParameterShard> = (0..world_size)
            .map(|r| ParameterShard::of(&network, r, world_size))
            .collect();
        let parameters = network.initial(settings.seed);
        let owned: Vec<f32> = shards[rank]
            .ranges()
            .iter()
            .flat_map(|range| parameters[range.clone()].iter().copied())
            .collect();
        Self {
            settings,
            schedule,
            adam: AdamState::new(owned.len(), settings.learning_rate),
            gradient: vec![0.0; network.parameter_count()],
            network,
            order: (0, random::permutation(settings.seed, 0, digits.len())),
            digits,
            shards,
            rank,
            parameters,
            owned,
            step: 0,
            ledger: SampleLedger::default(),
            scratch: PassBuffers::default(),
        }
    }

    /// Returns the boxes of this rank's checkpoint.
    pub(crate) fn boxes(&self) -> Vec<TensorBox> {
        self.shards[self.rank].boxes()
    }

    /// Restores this rank's part of a checkpoint.
    pub(crate) fn restore(&mut self, restored: RestoredTensors) -> Result<(), FailureCause> {
        let Step(step) = restored.step;
        let settings = self.settings.identity();
        let base = TrainerState::merge(restored.states, step, settings, &self.schedule)?;
        if step > self.schedule.total_steps() {
            let problem = format!("the run has {} steps", self.schedule.total_steps());
            return Err(FailureCause::State { step, problem });
        }
        // The tensors are ordered by kind, as `boxes` requests them.
        let bytes = restored.tensors.concat();
        let kinds = [&mut self.owned, &mut self.adam.m, &mut self.adam.v];
        let len = 4 * self.shards[self.rank].len();
        if bytes.len() != kinds.len() * len {
            let problem = format!("the tensors have {} bytes, want {}", bytes.len(), 3 * len);
            return Err(FailureCause::State { step, problem });
        }
        for (kind, values) in kinds.into_iter().enumerate() {
            read_values(&bytes[kind * len..][..len], values);
        }
        self.step = step;
        // One rank carries the samples consumed before; otherwise they would count once per rank.
        if self.rank == 0 {
            self.ledger = base;
        }
        Ok(())
    }

    /// Collects the parameters of all shards. Also checks that all ranks start from the same step.
    pub(crate) fn gather(&mut self, mesh: &mut RankMesh) -> Result<(), FailureCause> {
        let mut message = self.step.to_le_bytes().to_vec();
        write_values(&self.owned, &mut message);
        let incoming = mesh.exchange(CollectiveOp::AllGather, vec![message; mesh.world_size()])?;
        for (rank, message) in incoming.iter().enumerate() {
            let shard = &self.shards[rank];
            let body = message.strip_prefix(&self.step.to_le_bytes());
            match body.filter(|body| body.len() == 4 * shard.len()) {
                Some(body) => shard.read(body, &mut self.parameters),
                None => return Err(mesh.mixed(CollectiveOp::AllGather, rank).into()),
            }
        }
        Ok(())
    }

    /// Runs one optimizer step; returns the batch's mean loss, the same on every rank.
    pub(crate) fn advance(&mut self, mesh: &mut RankMesh) -> Result<f64, FailureCause> {
        let window = self.schedule.window(self.step);
        if self.order.0 != window.epoch {
            let order = random::permutation(self.settings.seed, window.epoch, self.schedule.samples);
            self.order = (window.epoch, order);
        }
        let mut outgoing: Vec<Vec<u8>> = vec![Vec::new(); self.shards.len()];
        for virtual_rank in self.schedule.virtual_ranks_of(self.rank, self.shards.len()) {
            let piece = self.schedule.share(&window, virtual_rank);
            let batch = self.batch(piece);
            self.gradient.fill(0.0);
            let trained = self
                .network
                .train(&self.parameters, &batch, &mut self.gradient, &mut self.scratch);
            let outcome = trained.map_err(|mut error| {
                error.frames.insert(0, SourceFrame::here("advance"));
                error
            })?;
            for (message, shard) in outgoing.iter_mut().zip(&self.shards) {
                message.extend(outcome.loss.to_le_bytes());
                message.extend(outcome.correct.to_le_bytes());
                shard.write(&self.gradient, message);
            }
        }
        let incoming = mesh.exchange(CollectiveOp::ReduceScatter, outgoing)?;
        let (outcome, mut gradient) = self.fold(mesh, &incoming)?;
        let count = window.positions.len();
        gradient.iter_mut().for_each(|slope| *slope /= count as f32);
        self.step += 1;
        self.adam.update(self.step, &gradient, &mut self.owned);
        let consumed = self.schedule.consumed_by(&window, self.rank, self.shards.len());
        self.ledger
            .add(window.epoch, consumed.start as u64..consumed.end as u64);
        self.gather(mesh)?;
        Ok(outcome.loss / count as f64)
    }

    /// Returns the samples at these positions of the epoch's order.
    fn batch(&self, positions: Range<usize>) -> SampleBatch {
        let planted = self.settings.bug_at_step == Some(self.step + 1)
            && self.settings.bug_rank as usize % self.shards.len() == self.rank;
        // Injected bug: one column too many, as if the label had been added to the image.
        let width = PIXELS + usize::from(planted);
        let mut batch = SampleBatch {
            width,
            ..SampleBatch::default()
        };
        for &sample in &self.order.1[positions] {
            let sample = sample as usize;
            let label = self.digits.label(sample);
            batch.values.extend_from_slice(self.digits.image(sample));
            if planted {
                batch.values.push(label.into());
            }
            batch.labels.push(label);
        }
        batch
    }

    /// Adds the gradients of the virtual ranks for this rank's shard, in their order. Ranks compute contiguous virtual
    /// ranks, so the order of ranks is that order.
    fn fold(&self, mesh: &RankMesh, incoming: &[Vec<u8>]) -> Result<(BatchOutcome, Vec<f32>), MeshError> {
        let piece_bytes = HEAD_BYTES + 4 * self.owned.len();
        let mut total = BatchOutcome::default();
        let mut sum = vec![0.0_f32; self.owned.len()];
        for (rank, message) in incoming.iter().enumerate() {
            let played = self.schedule.virtual_ranks_of(rank, self.shards.len());
            if message.len() != played.len() * piece_bytes {
                return Err(mesh.mixed(CollectiveOp::ReduceScatter, rank));
            }
            for piece in message.chunks_exact(piece_bytes) {
                let (loss, rest) = piece.split_first_chunk().expect("a piece has a head");
                let (correct, slopes) = rest.split_first_chunk().expect("a piece has a head");
                total.loss += f64::from_le_bytes(*loss);
                total.correct += u32::from_le_bytes(*correct);
                for (sum, slope) in sum.iter_mut().zip(slopes.as_chunks::<4>().0) {
                    *sum += f32::from_le_bytes(*slope);
                }
            }
        }
        Ok((total, sum))
    }

    /// Returns the bytes of a checkpoint, kind by kind, in the order of [`Self::boxes`].
    pub(crate) fn image(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 * self.owned.len());
        for kind in [&self.owned, &self.adam.m, &self.adam.v] {
            write_values(kind, &mut bytes);
        }
        bytes
    }

    /// Returns the small state of a checkpoint.
    pub(crate) fn state(&self) -> TrainerState {
        TrainerState {
            epoch: self.schedule.window(self.step).epoch,
            step: self.step,
            settings: self.settings.identity(),
            ledger: self.ledger.clone(),
        }
    }

    /// Returns loss and hits of the parameters over the whole training set.
    pub(crate) fn evaluate(&mut self) -> Result<BatchOutcome, FailureCause> {
        let mut total = BatchOutcome::default();
        for sample in 0..self.digits.len() {
            let batch = SampleBatch {
                width: PIXELS,
                values: self.digits.image(sample).to_vec(),
                labels: vec![self.digits.label(sample)],
            };
            let one = self.network.evaluate(&self.parameters, &batch, &mut self.scratch)?;
            total.loss += one.loss;
            total.correct += one.correct;
        }
        Ok(total)
    }
}
