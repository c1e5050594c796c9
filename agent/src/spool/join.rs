//! Join: comparison of the controller's journal of this node with the content of the spool.

use rankguard_model::{JournalMark, RestoredSpool, Sequence, SpoolEpoch, restored_spool};
use redb::{Durability, ReadableTable, ReadableTableMetadata};

use super::epochs::{self, EPOCHS};
use super::table::{self, EVIDENCE, META};
use super::{Spool, SpoolError, SpoolState, database, opened, overflow};

/// Result of a join for the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpoolJoin {
    /// The session may continue.
    Continues,
    /// The state directory is a restored copy: its evidence has new numbers in a new epoch, which the next session
    /// reports.
    Renumbered,
}

impl Spool {
    /// Returns the id of the current epoch: see [`Spool::send_after`].
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epochs.current()
    }

    /// Returns the epochs for a join. The current one counts as reported from now on.
    ///
    /// A failed write does not prevent the join. If the agent is then killed before it records anything, its successor
    /// takes its own directory for a restored copy and reports a gap.
    pub(crate) fn report_epochs(&self) -> Vec<SpoolEpoch> {
        let mut state = self.lock();
        if state.epochs.report()
            && let Err(problem) = self.write_epochs(&state.epochs)
        {
            tracing::warn!(%problem, "cannot record that the spool's epoch is reported");
        }
        state.epochs.list(state.last)
    }

    fn write_epochs(&self, epochs: &epochs::EpochChain) -> Result<(), SpoolError> {
        let db = self.db();
        let txn = opened(&db)?.begin_write().map_err(database)?;
        epochs.write(&mut txn.open_table(EPOCHS).map_err(database)?)?;
        txn.commit().map_err(database)
    }

    /// Handles the controller's answer to a join: it has journalled this node up to `acknowledged` and received these
    /// epochs at the join before.
    ///
    /// For a controller without epochs the numbers decide: a spool that never joined although the controller knows the
    /// node, or that is behind the acknowledged number, is a new spool of a known node. Its evidence gets numbers
    /// beyond the acknowledged ones; otherwise it would be dropped as a repetition.
    pub(crate) fn joined(&self, acknowledged: Sequence, reported: &[SpoolEpoch]) -> Result<SpoolJoin, SpoolError> {
        let mut state = self.lock();
        if let Some(restored) = restored_spool(&state.epochs.list(state.last), reported, acknowledged) {
            self.go_on_from_original(&mut state, acknowledged, reported, restored)?;
            return Ok(SpoolJoin::Renumbered);
        }
        let is_new = acknowledged.0 > state.last || (!state.joined && acknowledged.0 > 0);
        if is_new && reported.is_empty() {
            let what = "the spool was lost: what it held and the controller had not journalled is gone";
            self.renumber(&mut state, acknowledged, Sequence(0), what, |_| Ok(()))?;
        } else if !state.joined {
            let db = self.db();
            let txn = opened(&db)?.begin_write().map_err(database)?;
            let mut meta = txn.open_table(META).map_err(database)?;
            meta.insert(table::JOINED, 1).map_err(database)?;
            drop(meta);
            txn.commit().map_err(database)?;
            state.joined = true;
        }
        drop(state);
        self.ack(acknowledged, None)?;
        Ok(SpoolJoin::Continues)
    }

    /// Renumbers the evidence that the original has not delivered beyond the acknowledged numbers, after a gap that
    /// names the loss.
    fn go_on_from_original(
        &self,
        state: &mut SpoolState,
        acknowledged: Sequence,
        reported: &[SpoolEpoch],
        restored: RestoredSpool,
    ) -> Result<(), SpoolError> {
        let what = self.loss(acknowledged, restored);
        tracing::warn!(what, "the state directory is not the one that last joined");
        let id = epochs::new_id()?;
        let settled = restored.common.min(acknowledged);
        self.renumber(state, acknowledged, settled, &what, |epochs| {
            epochs.adopt(reported, settled.0, acknowledged.0, id);
            Ok(())
        })
    }

    fn loss(&self, acknowledged: Sequence, restored: RestoredSpool) -> String {
        let node = &self.node;
        let common = restored.common;
        if common == Sequence(0) {
            return format!(
                "the state directory of node {node} is not the one that last joined and knows nothing of it: what the other \
                 one recorded after number {acknowledged} and did not deliver is lost, its count is not known"
            );
        }
        let delivered = if acknowledged > common {
            format!(
                "numbers {} to {acknowledged} were recorded after the copy and delivered; ",
                common.next()
            )
        } else {
            String::new()
        };
        format!(
            "the state directory of node {node} was restored from a copy that ends with number {common}: {delivered}what \
             was recorded later and not delivered is lost, its count is not known; lines of files that were read after the \
             copy are read and reported again"
        )
    }

    /// Renumbers all records after `settled` beyond `acknowledged`, with a gap before them, and removes those up to
    /// `settled`.
    fn renumber(
        &self,
        state: &mut SpoolState,
        acknowledged: Sequence,
        settled: Sequence,
        what: &str,
        change: impl FnOnce(&mut epochs::EpochChain) -> Result<(), SpoolError>,
    ) -> Result<(), SpoolError> {
        let mut epochs = state.epochs.clone();
        change(&mut epochs)?;
        let db = self.db();
        let txn = opened(&db)?.begin_write().map_err(database)?;
        let (last, mut bytes) = {
            let mut records = txn.open_table(EVIDENCE).map_err(database)?;
            records.retain_in(..=settled.0, |_, _| false).map_err(database)?;
            overflow::renumber_beyond(&mut records, &self.node, acknowledged.0, what)?;
            let mut meta = txn.open_table(META).map_err(database)?;
            let last = acknowledged.0 + records.len().map_err(database)?;
            meta.insert(table::LAST, last).map_err(database)?;
            meta.insert(table::ACKED, acknowledged.0).map_err(database)?;
            meta.insert(table::JOINED, 1).map_err(database)?;
            epochs.write(&mut txn.open_table(EPOCHS).map_err(database)?)?;
            (last, 0)
        };
        {
            let records = txn.open_table(EVIDENCE).map_err(database)?;
            for entry in records.iter().map_err(database)? {
                bytes += table::cost(entry.map_err(database)?.1.value());
            }
        }
        txn.commit().map_err(database)?;
        (state.last, state.sent, state.acked) = (last, acknowledged.0, acknowledged.0);
        (state.bytes, state.joined, state.epochs) = (bytes, true, epochs);
        self.publish(state);
        self.durable.send_replace(last);
        Ok(())
    }

    /// Returns the newest known entry of a controller's journal.
    pub(crate) fn journal(&self) -> Option<JournalMark> {
        self.lock().journal
    }

    /// Stores the journal mark of the controller that answered a join.
    pub(crate) fn remember_journal(&self, mark: JournalMark) -> Result<(), SpoolError> {
        let mut state = self.lock();
        if state.journal == Some(mark) {
            return Ok(());
        }
        let db = self.db();
        let txn = opened(&db)?.begin_write().map_err(database)?;
        {
            let mut meta = txn.open_table(META).map_err(database)?;
            for (key, value) in [
                (table::JOURNAL, mark.journal),
                (table::JOURNAL_LIFE, mark.life),
                (table::JOURNAL_POSITION, mark.position),
            ] {
                meta.insert(key, value).map_err(database)?;
            }
        }
        txn.commit().map_err(database)?;
        state.journal = Some(mark);
        Ok(())
    }

    /// Removes evidence up to `seq`, which the controller has journalled, in a journal of `position` entries.
    ///
    /// Not durable by itself: a lost acknowledgement only causes a repetition, which the controller detects by its
    /// number.
    pub(crate) fn ack(&self, seq: Sequence, position: Option<u64>) -> Result<(), SpoolError> {
        let mut state = self.lock();
        let upto = seq.0.min(state.last);
        if upto <= state.acked {
            return Ok(());
        }
        let journal = state.journal.map(|known| JournalMark {
            position: known.position.max(position.unwrap_or_default()),
            ..known
        });
        let db = self.db();
        let mut txn = opened(&db)?.begin_write().map_err(database)?;
        txn.set_durability(Durability::None)
            .map_err(|e| database(redb::Error::from(e)))?;
        let mut freed = 0;
        {
            let mut records = txn.open_table(EVIDENCE).map_err(database)?;
            records
                .retain_in(..=upto, |_, value| {
                    freed += table::cost(value);
                    false
                })
                .map_err(database)?;
            let mut meta = txn.open_table(META).map_err(database)?;
            meta.insert(table::ACKED, upto).map_err(database)?;
            if let Some(mark) = journal {
                meta.insert(table::JOURNAL_POSITION, mark.position).map_err(database)?;
            }
        }
        txn.commit().map_err(database)?;
        (state.acked, state.journal) = (upto, journal);
        state.sent = state.sent.max(upto);
        state.bytes = state.bytes.saturating_sub(freed);
        self.publish(&state);
        Ok(())
    }
}
