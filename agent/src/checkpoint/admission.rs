//! Whether the node has the memory that images of its ranks will take, before it is taken.

use rankguard_checkpoint_schedule::admission::{Gib, Has, Wanted};

use super::Checkpoints;
use super::error::DeskError;
use crate::preflight::host::available;

impl Checkpoints {
    /// Whether there is room for `slots` images of a state of so many bytes, the ranks of this node together. A system that
    /// does not say what it has is believed to have enough.
    pub(super) fn admit(&self, state: u64, slots: u32) -> Result<(), DeskError> {
        let Some((bytes, place)) = available(&self.proc_root, &self.sysfs_root) else {
            return Ok(());
        };
        let has = Has {
            available: bytes,
            reserve: self.images.memory_reserve,
        };
        let wanted = Wanted {
            state,
            slots,
            copies: 0,
            parity: None,
            buffers: 0,
        };
        wanted.admit(&has).map(|_| ()).map_err(|refusal| {
            let (bytes, reserve) = (Gib(bytes), Gib(has.reserve));
            // What can be set comes first: a line that is long is cut at its end.
            DeskError::Memory(format!(
                "agent.memory_reserve_bytes keeps {reserve} of {bytes} {place}, with {slots} slots a rank \
                 (agent.image_slots): {refusal}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rankguard_model::NodeId;

    use super::*;
    use crate::intake::Intake;
    use crate::ranks::Roster;
    use crate::settings::Settings;

    #[tokio::test]
    async fn what_does_not_fit_is_refused_with_numbers_and_what_to_set() {
        let root = tempfile::tempdir().expect("a temporary directory");
        fs::write(root.path().join("meminfo"), "MemAvailable: 3145728 kB\n").expect("written");
        let mut settings = Settings::new(NodeId::from("n1"), "", "");
        settings.proc_root = root.path().to_owned();
        settings.sysfs_root = root.path().join("no-sysfs");
        settings.images.memory_reserve = 1 << 30;
        let checkpoints = |settings: &Settings| {
            let runtime = tokio::runtime::Handle::current();
            let node = settings.node.clone();
            Checkpoints::new(settings, &Intake::new(node.clone()), &Roster::new(node), runtime)
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
        settings.proc_root = root.path().join("elsewhere");
        assert!(checkpoints(&settings).admit(u64::MAX, 3).is_ok(), "nothing is known");
    }
}
