//! Memory admission: checks that the node has the memory for images of its ranks before any of it is allocated.

use rankguard_checkpoint::arena::least_window;
use rankguard_checkpoint_schedule::admission::{AdmissionRefusal, GibDisplay, MemoryRequest, NodeMemory};

use super::CheckpointService;
use super::arenas::ArenaRequest;
use super::error::RankServiceError;
use crate::preflight::host::available;

/// Window in bytes that the error message proposes where whole images do not fit: 64 MiB, wide enough that no disk
/// waits for it.
const USUAL_WINDOW: u64 = 64 << 20;

impl CheckpointService {
    /// Checks that memory is available for the arenas of ranks that have none yet; `bytes` is their total for each
    /// slot.
    pub(super) fn admit_arenas(&self, bytes: u64, asked: &ArenaRequest<'_>) -> Result<(), RankServiceError> {
        match asked.window {
            Some(window) => self.weigh(bytes, 1, |refusal, has| match refusal {
                AdmissionRefusal::TooMuch(need) => format!(
                    "windows of {} a rank (--checkpoint-window) need {} a node, and {} may be taken besides the {} of \
                     agent.memory_reserve_bytes; ask for smaller ones",
                    GibDisplay(window),
                    GibDisplay(need.total),
                    GibDisplay(need.headroom),
                    GibDisplay(has.reserve),
                ),
                other => other.to_string(),
            }),
            None => self.weigh(bytes, asked.slots, |refusal, has| {
                let way = window_for(asked, has).map(|window| {
                    let mib = window >> 20;
                    let all = GibDisplay(window * asked.ranks.len() as u64);
                    format!(", or `run --checkpoint-window {mib}`, which takes {all} and holds no image")
                });
                refusal_text(refusal, has, asked.slots, &way.unwrap_or_default())
            }),
        }
    }

    /// Checks that memory is available for `slots` images of `state` bytes, summed over the ranks of this node. Admits
    /// everything where the system does not report its available memory.
    pub(super) fn admit(&self, state: u64, slots: u32) -> Result<(), RankServiceError> {
        self.weigh(state, slots, |refusal, has| refusal_text(refusal, has, slots, ""))
    }

    fn weigh(
        &self,
        state: u64,
        slots: u32,
        tell: impl FnOnce(&AdmissionRefusal, &AvailableMemory) -> String,
    ) -> Result<(), RankServiceError> {
        let Some((bytes, place)) = available(&self.proc_root, &self.sysfs_root) else {
            return Ok(());
        };
        let has = NodeMemory {
            available: bytes,
            reserve: self.images.memory_reserve,
        };
        let wanted = MemoryRequest {
            state,
            slots,
            copies: 0,
            parity: None,
            buffers: 0,
        };
        let room = AvailableMemory {
            available: bytes,
            reserve: has.reserve,
            place,
        };
        let refused = |refusal| RankServiceError::Memory(tell(&refusal, &room));
        wanted.admit(&has).map(|_| ()).map_err(refused)
    }
}

/// Available memory in bytes, and its source.
struct AvailableMemory {
    available: u64,
    reserve: u64,
    place: String,
}

/// Formats a refusal. The settings come first, because a long line is truncated at its end.
fn refusal_text(refusal: &AdmissionRefusal, has: &AvailableMemory, slots: u32, way_out: &str) -> String {
    let bytes = GibDisplay(has.available);
    let reserve = GibDisplay(has.reserve);
    let place = &has.place;
    format!(
        "agent.memory_reserve_bytes keeps {reserve} of {bytes} {place}, with {slots} slots a rank \
         (agent.image_slots){way_out}: {refusal}"
    )
}

/// Returns a window per rank, in whole MiB, that fits for all ranks of the node; `None` if there is none.
fn window_for(asked: &ArenaRequest<'_>, has: &AvailableMemory) -> Option<u64> {
    let most = has.available.saturating_sub(has.reserve) / (asked.ranks.len() as u64).max(1);
    let least = least_window(asked.image_bytes);
    let window = USUAL_WINDOW.max(least).min(most) >> 20 << 20;
    (window >= least && window > 0 && window < asked.image_bytes).then_some(window)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rankguard_model::NodeId;

    use super::*;
    use crate::intake::EvidenceIntake;
    use crate::roster::RankRoster;
    use crate::settings::AgentSettings;

    #[tokio::test]
    async fn what_does_not_fit_is_refused_with_numbers_and_what_to_set() {
        let root = tempfile::tempdir().expect("a temporary directory");
        fs::write(root.path().join("meminfo"), "MemAvailable: 3145728 kB\n").expect("written");
        let mut settings = AgentSettings::new(NodeId::from("n1"), "", "");
        settings.proc_root = root.path().to_owned();
        settings.sysfs_root = root.path().join("no-sysfs");
        settings.images.memory_reserve = 1 << 30;
        let checkpoints = |settings: &AgentSettings| {
            let runtime = tokio::runtime::Handle::current();
            let node = settings.node.clone();
            CheckpointService::new(
                settings,
                &EvidenceIntake::new(node.clone()),
                &RankRoster::new(node),
                runtime,
            )
        };
        let all = checkpoints(&settings);
        assert!(all.admit(1 << 30, 2).is_ok(), "2 of 2 GiB");
        let refusal = all.admit(1 << 30, 3).expect_err("3 of 2 GiB").to_string();
        for part in [
            "needs 3.000 GiB",
            "2.000 GiB may be taken",
            "2 slots a rank would fit",
            "on the host",
            "3 slots a rank (agent.image_slots)",
            "agent.memory_reserve_bytes",
        ] {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
        let job = rankguard_model::JobId::from("train");
        let asked = |window| ArenaRequest {
            job: &job,
            generation: rankguard_model::Generation(1),
            local_rank: 0,
            ranks: &[],
            image_bytes: 3 << 30,
            headroom_bytes: 0,
            meta_bytes: 0,
            slots: 1,
            window,
        };
        let refusal = all
            .admit_arenas(3 << 30, &asked(None))
            .expect_err("3 of 2 GiB")
            .to_string();
        assert!(refusal.contains("or `run --checkpoint-window 64`"), "{refusal}");
        assert!(all.admit_arenas(64 << 20, &asked(Some(64 << 20))).is_ok());
        let wide = all
            .admit_arenas(3 << 30, &asked(Some(3 << 30)))
            .expect_err("3 of 2 GiB");
        let wide = wide.to_string();
        assert!(
            wide.contains("need 3.000 GiB a node, and 2.000 GiB may be taken"),
            "{wide}"
        );
        settings.proc_root = root.path().join("elsewhere");
        assert!(checkpoints(&settings).admit(u64::MAX, 3).is_ok(), "nothing is known");
    }
}
