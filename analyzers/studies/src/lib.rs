//! Studies over the canonical tables of any failure data set, and reproduction of published figures.
//!
//! - [`studies`]: the catalogue; each [`Study`] returns an [`StudyResult`]: definition, population, window, tables, plots.
//! - [`figures`]: the published figures of a data set beside those computed from its files, each with its definition.
//! - [`report`]: outcomes as one self-contained HTML page; [`StudyPlot::drawing`] is one picture, as SVG or item by item.
//!
//! Invariants: no rate without a population and no repair time that the source does not have: [`StudyError::Missing`]
//! names the missing input. Counts are of rows as published, repeats included, unless the definition differs.
//!
//! Absent: reading files (see `rankguard-datasets`; only traces of operations and flight-recorder dumps, which have no
//! table, are read for their figures), stragglers and hangs (`rankguard diagnose`), gamma fits with censoring.

mod error;
mod outcome;
mod plot;
mod report;
mod reproduced;
mod studies;

pub use error::StudyError;
pub use outcome::{ResultCell, ResultTable, StudyResult};
pub use plot::{DrawingItem, INK, PlotContent, RgbColour, StudyPlot, SvgDrawing, TextAnchor};
pub use report::report;
pub use reproduced::{FigureComparison, PublishedRange, ReproducedFigure, figures};
pub use studies::{Study, StudyOptions, studies};
