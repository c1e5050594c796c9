//! Sources, one a file. Of two that claim equally many files the one listed first is chosen.

mod alibaba_ssd;
mod alpine;
mod bamboo;
mod bgl;
mod counted;
mod fta;
pub(crate) mod imported;
mod infinitehbd;
mod jobs_csv;
mod journal;
mod lanl;
mod loghub;
mod node_logs;
mod openb;
mod pai2020;
mod philly;
mod skypilot;
mod slurm;
mod tables;
mod titan;

use crate::source::SourceFormat;

static SOURCES: &[SourceFormat] = &[
    infinitehbd::SOURCE,
    titan::SOURCE,
    lanl::SOURCE,
    fta::GRID5000,
    fta::ANY,
    bgl::FAILURES,
    bgl::LABELLED,
    alibaba_ssd::SOURCE,
    openb::SOURCE,
    alpine::SOURCE,
    skypilot::SOURCE,
    bamboo::SOURCE,
    jobs_csv::EAGLE,
    slurm::SOURCE,
    loghub::SOURCE,
    node_logs::SOURCE,
    tables::SUMMARIES,
    tables::PUBLISHED,
    philly::SOURCE,
    jobs_csv::HELIOS,
    jobs_csv::ACME,
    pai2020::SOURCE,
    counted::STRAGGLERS,
    counted::FLIGHT,
    counted::DLROVER,
    counted::CHRONICLES,
    journal::SOURCE,
    imported::SOURCE,
    crate::mapped::SOURCE,
];

/// Returns all known sources.
pub fn sources() -> &'static [SourceFormat] {
    SOURCES
}
