//! Placements compared with the recomputed table, closed forms and every set of losses.

use proptest::prelude::*;
use rankguard_checkpoint_schedule::spares;
use rankguard_checkpoint_schedule::survival::{RedundancyScheme, groups, one_ring, survival};

/// Parity inside of groups of about this many nodes, as in the table.
fn parity(nodes: u32, nodes_per_group: u32, parities: u32) -> Vec<RedundancyScheme> {
    let count = (nodes / nodes_per_group.max(1)).max(1);
    let size = nodes / count;
    let larger = nodes % count;
    let part = |at| RedundancyScheme::Group {
        nodes: size + u32::from(at < larger),
        tolerates: parities,
    };
    (0..count).map(part).collect()
}

#[track_caller]
fn close(got: f64, want: f64) {
    assert!((got - want).abs() <= 0.000_05 + 1e-12, "{got} is not {want}");
}

#[test]
fn the_exactly_recomputed_table() {
    close(survival(&groups(16, 2), 2), 0.9333);
    close(survival(&groups(16, 2), 3), 0.8000);
    close(survival(&one_ring(16, 2), 2), 0.8667);
    close(survival(&one_ring(16, 2), 3), 0.6286);
    close(survival(&groups(128, 2), 2), 0.9921);
    close(survival(&groups(128, 2), 4), 0.9529);
    close(survival(&groups(1024, 2), 2), 0.9990);
    close(survival(&groups(1024, 2), 8), 0.9728);
    close(survival(&parity(16, 8, 2), 2), 1.0);
    close(survival(&parity(16, 8, 2), 3), 0.8);
    close(survival(&parity(128, 8, 2), 4), 0.9898);
    close(survival(&parity(1024, 8, 2), 8), 0.9978);
    close(survival(&parity(1024, 16, 2), 8), 0.9893);
    close(survival(&parity(1024, 8, 1), 8), 0.8222);
    close(survival(&parity(1020, 10, 2), 8), 0.9962);
}

/// Four groups of three and a ring of four: 8 fatal triples of 560.
#[test]
fn the_mixed_placement_of_sixteen_nodes_with_three_copies() {
    let mixed = groups(16, 3);
    assert_eq!(mixed.len(), 5);
    assert_eq!(mixed[4], RedundancyScheme::Ring { nodes: 4, copies: 3 });
    let fatal = (1.0 - survival(&mixed, 3)) * 560.0;
    assert!((fatal - 8.0).abs() < 1e-9, "{fatal}");
    close(survival(&mixed, 3), 0.9857);
}

#[test]
fn a_large_ring_agrees_with_the_closed_form_and_no_losses_are_always_survived() {
    // N/(N-k) C(N-k, k) / C(N, k), as a product.
    let closed = |n: f64, k: u32| {
        let product = (0..k).fold(1.0, |p, i| p * (n - f64::from(k) - f64::from(i)) / (n - f64::from(i)));
        n / (n - f64::from(k)) * product
    };
    for k in [2, 8, 100] {
        let got = survival(&one_ring(1_024, 2), k);
        let want = closed(1_024.0, k);
        assert!((got / want - 1.0).abs() < 1e-9, "{k}: {got} {want}");
    }
    assert_eq!(survival(&groups(7, 2), 0), 1.0);
    assert_eq!(survival(&groups(4, 2), 5), 0.0);
    assert_eq!(survival(&[], 0), 1.0);
}

/// True if one set of losses, one bit per node, is survived.
fn survives(parts: &[RedundancyScheme], lost: u32) -> bool {
    let mut first = 0;
    parts.iter().all(|part| {
        let nodes = part.nodes();
        let at = first;
        first += nodes;
        let is_lost = |node: u32| lost & (1 << (at + node % nodes)) != 0;
        match *part {
            RedundancyScheme::Group { tolerates, .. } => {
                (0..nodes).filter(|node| is_lost(*node)).count() <= tolerates as usize
            }
            RedundancyScheme::Ring { copies, .. } => {
                (0..nodes).all(|node| (0..copies).any(|next| !is_lost(node + next)))
            }
        }
    })
}

fn a_part() -> impl Strategy<Value = RedundancyScheme> {
    let group = (1..6_u32, 0..4_u32).prop_map(|(nodes, tolerates)| RedundancyScheme::Group { nodes, tolerates });
    let ring = (1..4_u32, 0..4_u32).prop_map(|(copies, more)| RedundancyScheme::Ring {
        nodes: copies + more,
        copies,
    });
    prop_oneof![group, ring]
}

proptest! {
    #[test]
    fn the_probability_is_the_share_of_all_sets(parts in prop::collection::vec(a_part(), 1..4), lost in 0..10_u32) {
        let nodes: u32 = parts.iter().map(|part| part.nodes()).sum();
        prop_assume!(lost <= nodes && nodes <= 14);
        let sets: Vec<u32> = (0..1_u32 << nodes).filter(|set| set.count_ones() == lost).collect();
        let good = sets.iter().filter(|set| survives(&parts, **set)).count();
        let want = good as f64 / sets.len() as f64;
        prop_assert!((survival(&parts, lost) - want).abs() < 1e-9, "{} {want}", survival(&parts, lost));
    }

    #[test]
    fn more_losses_and_fewer_parities_are_never_better(nodes in 2..200_u32, size in 2..12_u32, lost in 0..20_u32) {
        for p in 0..3 {
            let parts = parity(nodes, size, p);
            prop_assert_eq!(parts.iter().map(|part| part.nodes()).sum::<u32>(), nodes);
            prop_assert!(survival(&parts, lost + 1) <= survival(&parts, lost) + 1e-12);
            prop_assert!(survival(&parts, lost) <= survival(&parity(nodes, size, p + 1), lost) + 1e-12);
        }
    }

    #[test]
    fn wanted_spares_are_enough_and_one_less_is_not(expected in 0.0..500.0_f64, nines in 1..9_i32) {
        let short = 10_f64.powi(-nines);
        let wanted = spares::required_spares(expected, 1.0 - short).expect("a number");
        prop_assert!(spares::too_few(wanted, expected) <= short * 1.001);
        prop_assert!(wanted == 0 || spares::too_few(wanted - 1, expected) > short * 0.999);
    }
}

#[test]
fn spares_by_hand() {
    // Mean 2: P(at most 5) = 0.98344, P(at most 6) = 0.99547.
    assert!((spares::enough(5, 2.0) - 0.983_436).abs() < 1e-6);
    assert_eq!(spares::required_spares(2.0, 0.99), Some(6));
    assert_eq!(spares::required_spares(0.0, 0.999), Some(0));
    assert_eq!(spares::required_spares(1.0, 1.0), None);
    assert!((spares::in_repair(2_048, 6.5 / 24_000.0, 48.0) - 26.624).abs() < 1e-9);
}
