//! Selection of the pairs of nodes to measure next, and of the nodes or links to blame. Pure: the caller requests a
//! round ([`LinkSearch::next`]), measures its pairs concurrently, and records the results.
//!
//! Terms:
//! - A measurement is bad if it failed, or if it is much slower than the best measurements; otherwise it is good.
//! - A node is proven if at least one of its measurements is good.
//!
//! In the first round every node is measured with one partner (with an odd number of nodes, one node with two). Each
//! node that is not proven is then measured with proven nodes; if all its measurements are bad, it is blamed. If both
//! nodes of a bad pair are proven, the link between them is blamed after its second bad measurement. A few rounds find
//! any number of bad nodes. If no node is proven, other pairs are measured until none is left, and nothing can be
//! blamed.
//!
//! Absent: an absolute limit of latency. If every pair of the first round is equally late, there is no faster pair to
//! compare with, and nothing is blamed.

use std::collections::{BTreeMap, BTreeSet};

/// Number of proven nodes with which a node is measured before it is blamed, because a single link may be bad too.
const REFERENCES: usize = 2;
/// Number of bad measurements of a pair before the link between its nodes is blamed.
const TWICE: usize = 2;
/// Quantile of all bandwidths that is the reference; for latencies it is 1 - `BEST`. The median would be no reference,
/// because a few bad nodes make most pairs bad.
const BEST: f64 = 0.9;
/// Part of the reference bandwidth below which a pair is bad.
const SLOW: f64 = 0.5;
/// Multiple of the reference latency above which a pair is bad.
const LATE: f64 = 10.0;
/// Latency up to which no pair is bad, seconds: below it, differences are scheduler noise.
const LATE_LEAST: f64 = 0.002;

/// Numbers of two nodes, the lower first.
pub type NodePair = (usize, usize);

/// Bandwidth and latency of one completed measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkMeasurement {
    /// Bandwidth, bytes per second.
    pub bandwidth: f64,
    /// Round-trip time, seconds.
    pub latency: f64,
}

/// All measurements so far between nodes 0 to `nodes` - 1.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSearch {
    /// Number of nodes.
    nodes: usize,
    /// Bandwidth below which a pair is bad in any case, bytes per second.
    least: f64,
    /// All measurements of each pair, oldest first; `None` for one that failed.
    results: BTreeMap<NodePair, Vec<Option<LinkMeasurement>>>,
}

/// Nodes and links that the results blame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkBlame {
    /// Nodes without a good measurement.
    pub nodes: Vec<usize>,
    /// Bad pairs of nodes that are both good with others.
    pub links: Vec<NodePair>,
    /// Bad pairs of which neither a node nor the link can be blamed, because no pair is good.
    pub open: Vec<NodePair>,
}

impl LinkSearch {
    /// Creates a search among `nodes` nodes without measurements. A pair below `least` bytes per second is bad in any
    /// case.
    pub fn new(nodes: usize, least: f64) -> Self {
        Self {
            nodes,
            least,
            results: BTreeMap::new(),
        }
    }

    /// Records a measurement of a pair; `None` if it failed. A pair of a node with itself, or with an unknown node, is
    /// ignored.
    pub fn record(&mut self, (one, other): NodePair, measured: Option<LinkMeasurement>) {
        let pair = (one.min(other), one.max(other));
        if pair.0 != pair.1 && pair.1 < self.nodes {
            self.results.entry(pair).or_default().push(measured);
        }
    }

    /// Returns all measurements of each pair, oldest first; `None` for one that failed.
    pub fn results(&self) -> &BTreeMap<NodePair, Vec<Option<LinkMeasurement>>> {
        &self.results
    }

    /// Returns the pairs to measure next, concurrently; no node is in two of them. Empty if the search is complete.
    pub fn next(&self) -> Vec<NodePair> {
        let mut round = MeasurementRound::default();
        for pair in tournament(self.nodes, 0) {
            round.add(pair, |pair| !self.results.contains_key(&pair));
        }
        if !round.pairs.is_empty() {
            return round.pairs;
        }
        let judged = self.judged();
        let proven = proven(&judged);
        if proven.is_empty() {
            // No reference exists: try other partners.
            let rounds = (1..self.nodes).map(|number| tournament(self.nodes, number));
            let fresh = |pair: &NodePair| !self.results.contains_key(pair);
            let next = rounds
                .map(|pairs| pairs.into_iter().filter(fresh).collect::<Vec<_>>())
                .find(|pairs| !pairs.is_empty());
            return next.unwrap_or_default();
        }
        for node in (0..self.nodes).filter(|node| !proven.contains(node)) {
            let asked = |reference: &&usize| self.results.contains_key(&ordered(node, **reference));
            let wanted = REFERENCES.min(proven.len());
            if proven.iter().filter(asked).count() >= wanted {
                continue;
            }
            // Spread over the proven nodes, so that many pairs can be measured concurrently.
            let start = node % proven.len();
            let references = proven.iter().cycle().skip(start).take(proven.len());
            for reference in references {
                let before = round.pairs.len();
                round.add(ordered(node, *reference), |pair| !self.results.contains_key(&pair));
                if round.pairs.len() > before {
                    break;
                }
            }
        }
        for (pair, outcomes) in &judged {
            let both = proven.contains(&pair.0) && proven.contains(&pair.1);
            if both && outcomes.iter().all(|good| !good) {
                round.add(*pair, |_| outcomes.len() < TWICE);
            }
        }
        round.pairs
    }

    /// Returns the nodes and links to blame by the results so far.
    pub fn blame(&self) -> LinkBlame {
        let judged = self.judged();
        let proven = proven(&judged);
        let bad = judged.iter().filter(|(_, outcomes)| outcomes.iter().all(|good| !good));
        let bad: Vec<(NodePair, usize)> = bad.map(|(pair, outcomes)| (*pair, outcomes.len())).collect();
        if proven.is_empty() {
            return LinkBlame {
                open: bad.into_iter().map(|(pair, _)| pair).collect(),
                ..LinkBlame::default()
            };
        }
        let measured: BTreeSet<usize> = judged.keys().flat_map(|(one, other)| [*one, *other]).collect();
        let between = bad
            .iter()
            .filter(|((one, other), times)| proven.contains(one) && proven.contains(other) && *times >= TWICE);
        LinkBlame {
            nodes: measured.difference(&proven).copied().collect(),
            links: between.map(|(pair, _)| *pair).collect(),
            open: Vec::new(),
        }
    }

    /// Classifies each measurement as good (true) or bad, against the reference quantiles of those that did not fail.
    fn judged(&self) -> BTreeMap<NodePair, Vec<bool>> {
        let done = || self.results.values().flatten().flatten();
        let fast = quantile(done().map(|it| it.bandwidth).collect(), BEST);
        let soon = quantile(done().map(|it| it.latency).collect(), 1.0 - BEST);
        let least = self.least.max(SLOW * fast);
        let late = (LATE * soon).max(LATE_LEAST);
        let good = |it: &Option<LinkMeasurement>| it.is_some_and(|it| it.bandwidth >= least && it.latency <= late);
        self.results
            .iter()
            .map(|(pair, all)| (*pair, all.iter().map(good).collect()))
            .collect()
    }
}

/// Pairs of one round.
#[derive(Default)]
struct MeasurementRound {
    pairs: Vec<NodePair>,
    busy: BTreeSet<usize>,
}

impl MeasurementRound {
    /// Adds a pair if `wanted` accepts it and neither node is in this round yet.
    fn add(&mut self, pair: NodePair, wanted: impl Fn(NodePair) -> bool) {
        if wanted(pair) && !self.busy.contains(&pair.0) && !self.busy.contains(&pair.1) {
            self.busy.extend([pair.0, pair.1]);
            self.pairs.push(pair);
        }
    }
}

/// Returns the nodes that were good in some pair.
fn proven(judged: &BTreeMap<NodePair, Vec<bool>>) -> BTreeSet<usize> {
    let good = judged.iter().filter(|(_, outcomes)| outcomes.contains(&true));
    good.flat_map(|((one, other), _)| [*one, *other]).collect()
}

fn ordered(one: usize, other: usize) -> NodePair {
    (one.min(other), one.max(other))
}

/// Returns a round of a round-robin tournament (circle method). With an odd number of nodes, one node of each round has
/// no partner. In round 0 that node is also paired: with node 0, or node 0 with node 1.
fn tournament(nodes: usize, round: usize) -> Vec<NodePair> {
    if nodes < 2 {
        return Vec::new();
    }
    let seats = nodes + nodes % 2;
    let place = |seat: usize| {
        if seat == 0 {
            0
        } else {
            1 + (seat - 1 + round) % (seats - 1)
        }
    };
    let pairs = (0..seats / 2).map(|seat| ordered(place(seat), place(seats - 1 - seat)));
    let mut pairs: Vec<NodePair> = pairs.filter(|(_, other)| *other < nodes).collect();
    if round == 0 {
        let resting = (0..nodes).find(|node| !pairs.iter().any(|(one, other)| one == node || other == node));
        pairs.extend(resting.map(|node| ordered(node, usize::from(node == 0))));
    }
    pairs
}

/// Returns the value at the quantile `part`, 0 to 1; 0.0 without values.
fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    values
        .get(index.min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAST: LinkMeasurement = LinkMeasurement {
        bandwidth: 1e9,
        latency: 1e-4,
    };
    const CRAWLS: LinkMeasurement = LinkMeasurement {
        bandwidth: 1e8,
        latency: 1e-4,
    };

    /// Faults of a simulated network. The sum of the node numbers of a pair selects the effect of its fault.
    #[derive(Debug, Clone)]
    struct Truth {
        nodes: usize,
        bad: BTreeSet<usize>,
        links: BTreeSet<NodePair>,
    }

    impl Truth {
        fn measure(&self, pair: NodePair) -> Option<LinkMeasurement> {
            let (one, other) = pair;
            let wrong = self.bad.contains(&one) || self.bad.contains(&other) || self.links.contains(&pair);
            match (one + other) % 3 {
                _ if !wrong => Some(FAST),
                0 => None,
                1 => Some(CRAWLS),
                _ => Some(LinkMeasurement { latency: 0.1, ..FAST }),
            }
        }

        /// True if the first round has a pair without a fault, as a reference.
        fn can_be_compared(&self) -> bool {
            let mut first = tournament(self.nodes, 0).into_iter();
            first.any(|pair| self.measure(pair) == Some(FAST))
        }

        /// Measures until the search is complete; returns the blame, the rounds and the measurements.
        fn search(&self) -> (LinkBlame, usize, usize) {
            let mut search = LinkSearch::new(self.nodes, 0.0);
            let mut rounds = 0;
            let mut count = 0;
            loop {
                let round = search.next();
                if round.is_empty() {
                    return (search.blame(), rounds, count);
                }
                let mut busy = BTreeSet::new();
                for pair in round {
                    assert!(pair.0 < pair.1 && pair.1 < self.nodes, "{pair:?}");
                    assert!(busy.insert(pair.0) && busy.insert(pair.1), "{pair:?} is busy");
                    search.record(pair, self.measure(pair));
                    count += 1;
                }
                rounds += 1;
                assert!(rounds < 4 * self.nodes + 10, "no end");
            }
        }
    }

    /// Returns networks in which fewer than a third of the nodes are bad, and a good node has at most one bad link.
    fn truths() -> impl Strategy<Value = Truth> {
        let parts = (4..40_usize).prop_flat_map(|nodes| {
            let bad = prop::collection::btree_set(0..nodes, 0..=(nodes - 1) / 3);
            let links = prop::collection::vec((0..nodes, 0..nodes), 0..6);
            (Just(nodes), bad, links)
        });
        parts.prop_map(|(nodes, bad, wanted)| {
            let mut taken = bad.clone();
            let mut links = BTreeSet::new();
            for (one, other) in wanted {
                if one != other && !taken.contains(&one) && !taken.contains(&other) {
                    taken.extend([one, other]);
                    links.insert(ordered(one, other));
                }
            }
            Truth { nodes, bad, links }
        })
    }

    proptest! {
        #[test]
        fn bad_nodes_are_named_and_no_good_one_is(truth in truths()) {
            let (blame, rounds, count) = truth.search();
            // With three good nodes of four and a bad link among them, two of the good ones may have one partner only.
            prop_assume!(truth.nodes - truth.bad.len() >= 4 && truth.can_be_compared());
            let bad: Vec<usize> = truth.bad.iter().copied().collect();
            prop_assert_eq!(&blame.nodes, &bad);
            prop_assert!(blame.links.iter().all(|pair| truth.links.contains(pair)), "{blame:?}");
            prop_assert!(blame.open.is_empty());
            prop_assert!(count <= 4 * truth.nodes, "{count} measurements of {} nodes", truth.nodes);
            prop_assert!(rounds <= truth.nodes + 6, "{rounds} rounds");
        }

        #[test]
        fn a_bad_way_that_was_measured_is_named(truth in truths()) {
            prop_assume!(truth.nodes - truth.bad.len() >= 4 && truth.can_be_compared());
            let first: BTreeSet<NodePair> = tournament(truth.nodes, 0).into_iter().collect();
            let (blame, ..) = truth.search();
            for pair in truth.links.intersection(&first) {
                prop_assert!(blame.links.contains(pair), "{pair:?} of {blame:?}");
            }
        }

        #[test]
        fn everybody_meets_everybody_once_in_a_tournament(nodes in 2..30_usize) {
            let mut met = BTreeSet::new();
            for round in 0..nodes + nodes % 2 - 1 {
                let pairs = tournament(nodes, round);
                // The node that would rest in the first round has two partners.
                let fresh = pairs.iter().filter(|pair| met.insert(**pair)).count();
                prop_assert!(fresh + 1 >= pairs.len());
            }
            prop_assert_eq!(met.len(), nodes * (nodes - 1) / 2);
        }
    }

    fn truth(nodes: usize, bad: &[usize], links: &[NodePair]) -> Truth {
        Truth {
            nodes,
            bad: bad.iter().copied().collect(),
            links: links.iter().copied().collect(),
        }
    }

    #[test]
    fn a_healthy_network_is_measured_once() {
        let (blame, rounds, count) = truth(8, &[], &[]).search();
        assert_eq!((blame, rounds, count), (LinkBlame::default(), 1, 4));
    }

    #[test]
    fn one_bad_node_and_one_bad_way_are_told_apart() {
        let (blame, ..) = truth(8, &[3], &[(0, 7)]).search();
        assert_eq!((blame.nodes, blame.links), (vec![3], vec![(0, 7)]));
    }

    #[test]
    fn of_two_nodes_and_where_all_are_bad_nothing_can_be_told() {
        let mut two = LinkSearch::new(2, 0.0);
        two.record((0, 1), None);
        assert_eq!((two.next(), two.blame().open), (vec![], vec![(0, 1)]));
        let (blame, rounds, _) = truth(5, &[0, 1, 2, 3, 4], &[]).search();
        assert_eq!((blame.nodes.len(), blame.open.len(), rounds), (0, 10, 6));
        assert_eq!(LinkSearch::new(1, 0.0).next(), []);
        assert_eq!(LinkSearch::new(0, 0.0).next(), []);
    }

    #[test]
    fn a_pair_that_was_bad_once_and_then_good_blames_nobody() {
        let mut search = LinkSearch::new(4, 0.0);
        for pair in search.next() {
            search.record(pair, (pair.0 != 0).then_some(FAST));
        }
        while let round @ [_, ..] = &search.next()[..] {
            for pair in round {
                search.record(*pair, Some(FAST));
            }
        }
        assert_eq!(search.blame(), LinkBlame::default());
    }

    #[test]
    fn all_that_are_slower_than_wanted_are_bad_although_they_are_alike() {
        let mut search = LinkSearch::new(2, 2e9);
        search.record((1, 0), Some(FAST));
        assert_eq!(search.blame().open, [(0, 1)]);
        search.record((1, 1), None);
        search.record((0, 9), None);
        assert_eq!(search.results().len(), 1);
    }
}
