//! RG-8: the state of every story, serialised and read back at any time, leads to the same end.

use std::fs;
use std::path::Path;

use rankguard_core::{DecisionState, step};
use rankguard_faults::Catalogue;
use rankguard_sim::{FaultScript, SimulatedWorld};

/// Number of times of a story at which its state is read back.
const CUTS: usize = 12;

#[test]
fn a_state_read_back_at_any_moment_of_a_story_leads_to_the_same_end() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut stories = 0;
    for entry in fs::read_dir(folder).expect("the scripts") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable");
        let ended = SimulatedWorld::new(FaultScript::parse(&text).expect("a script")).play();
        for cut in 0..CUTS {
            let cut = ended.journal.len() * cut / CUTS;
            let mut state = DecisionState::new(ended.state.policy().clone(), Catalogue::builtin());
            for stamped in &ended.journal[..cut] {
                step(&mut state, stamped);
            }
            let text = serde_json::to_string(&state).expect("a state can be written");
            let mut again: DecisionState = serde_json::from_str(&text).expect("a state can be read");
            assert!(again == state, "{}, {cut} events: another state", path.display());
            for stamped in &ended.journal[cut..] {
                assert_eq!(
                    step(&mut again, stamped),
                    step(&mut state, stamped),
                    "{}",
                    path.display()
                );
            }
            assert!(
                again == ended.state,
                "{}, cut after {cut} events: another end",
                path.display()
            );
        }
        stories += 1;
    }
    assert!(stories > 3, "{stories} stories");
}
