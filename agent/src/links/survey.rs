//! Survey of the links between many nodes, until all pairs that matter are measured or the time limit is reached.

use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_identity::PeerTransport;
use rankguard_model::{ClassId, FailedCheck, PeerAgent};
use tokio::task::JoinSet;

use super::plan::{LinkBlame, LinkMeasurement, LinkSearch, NodePair};
use super::{MeasuringAgent, measure};

/// Check name for a node with bad links to the others; the controller matches it by this name.
const CHECK: &str = "between";
/// Duration of one measurement while a job waits for it.
const LASTS: Duration = Duration::from_millis(200);

/// Result of a survey.
#[derive(Debug)]
pub struct LinkSurvey {
    /// Each measurement, or its error.
    pub rows: Vec<(NodePair, Result<LinkMeasurement, String>)>,
    /// Nodes and links that the results blame.
    pub blame: LinkBlame,
    /// True if the search completed; else the time limit was reached, and the blame is not reliable.
    pub whole: bool,
}

/// Measures between these agents. A pair is bad below `least` bytes per second in any case; each measurement lasts
/// `lasts`. No round begins after `until`.
pub async fn survey(
    network: &PeerTransport,
    stations: &[MeasuringAgent],
    least: f64,
    lasts: Duration,
    until: Option<Instant>,
) -> LinkSurvey {
    let mut search = LinkSearch::new(stations.len(), least);
    let mut rows = Vec::new();
    let whole = loop {
        let round = search.next();
        if round.is_empty() {
            break true;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            break false;
        }
        let mut open = JoinSet::new();
        for pair in round {
            let from = stations[pair.0].clone();
            let to = stations[pair.1].clone();
            let network = network.clone();
            open.spawn(async move { (pair, measure(&network, &from, &to, lasts).await) });
        }
        while let Some(done) = open.join_next().await {
            let Ok((pair, told)) = done else { continue };
            search.record(pair, told.clone().ok());
            rows.push((pair, told));
        }
    };
    LinkSurvey {
        rows,
        blame: search.blame(),
        whole,
    }
}

/// Findings about the links between a job's nodes.
#[derive(Debug, Default)]
pub(crate) struct LinkFindings {
    /// Nodes with bad links to all others.
    pub(crate) failed: Vec<FailedCheck>,
    /// Single bad links, as text: no node is to blame for them.
    pub(crate) single: Vec<String>,
    /// Reason if nothing is known.
    pub(crate) unknown: Option<String>,
}

/// Measures between the nodes of a job; takes little more than `limit`.
pub(crate) async fn before_job(network: &PeerTransport, peers: &[PeerAgent], limit: Duration) -> LinkFindings {
    let station = |peer: &PeerAgent| MeasuringAgent {
        node: peer.node.clone(),
        address: peer.address.clone(),
    };
    let stations: Vec<MeasuringAgent> = peers.iter().map(station).collect();
    let survey = survey(network, &stations, 0.0, LASTS, Some(Instant::now() + limit)).await;
    if !survey.whole {
        let what = format!(
            "the ways between {} nodes were not measured to the end within {limit:.0?}",
            peers.len()
        );
        return LinkFindings {
            unknown: Some(what),
            ..LinkFindings::default()
        };
    }
    let name = |index: &usize| peers.get(*index).map_or("-", |peer| peer.node.as_str());
    let failed = |node: &usize| FailedCheck {
        check: CHECK.to_owned(),
        subject: name(node).to_owned(),
        class: ClassId::from(classes::NETWORK_SLOW),
        found: format!(
            "slow with every measured node: at most {:.2} Gb/s, the fastest link has {:.2} Gb/s",
            survey.best(|pair| pair.0 == *node || pair.1 == *node),
            survey.best(|_| true)
        ),
        advice: "check its adapter, cable and switch port".to_owned(),
    };
    let links = survey.blame.links.iter().map(|(one, other)| {
        let one = name(one);
        let other = name(other);
        format!("the link between {one} and {other} is slow, while both nodes are fast with others")
    });
    let open = survey.blame.open.iter().map(|(one, other)| {
        let one = name(one);
        let other = name(other);
        format!("the link between {one} and {other} is slow, and no other link of either node is fast")
    });
    LinkFindings {
        failed: survey.blame.nodes.iter().map(failed).collect(),
        single: links.chain(open).collect(),
        unknown: None,
    }
}

impl LinkSurvey {
    /// Returns the greatest bandwidth of the selected pairs, Gbit/s.
    fn best(&self, of: impl Fn(&NodePair) -> bool) -> f64 {
        let rows = self.rows.iter().filter(|(pair, _)| of(pair));
        let bandwidths = rows.filter_map(|(_, told)| told.as_ref().ok()).map(|it| it.bandwidth);
        bandwidths.fold(0.0, f64::max) * 8.0 / 1e9
    }
}
