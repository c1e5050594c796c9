//! Consistency checks of one taxonomy: ids are unique, every category has its dimension, published figures add up.

use std::collections::BTreeSet;

use super::{FigureSum, OUTSIDE_SCOPE, Taxonomy, TaxonomyCategory};
use crate::mistake::{EntryPosition, nearest};

/// Reports every mistake of a taxonomy. `places` are the positions of its categories, dimensions and sums.
pub(crate) fn check(
    taxonomy: &Taxonomy,
    places: &ListPositions,
    tell: &mut dyn FnMut(&EntryPosition, &str, String, String),
) {
    let mut ids = BTreeSet::from([OUTSIDE_SCOPE]);
    let named = taxonomy
        .dimensions
        .iter()
        .map(|d| d.id.as_str())
        .zip(&places.dimensions);
    let named = named.chain(
        taxonomy
            .categories
            .iter()
            .map(|c| c.id.as_str())
            .zip(&places.categories),
    );
    for (id, place) in named {
        if !ids.insert(id) {
            let what = format!("{id:?} stands twice in {}", taxonomy.id);
            tell(
                place,
                "id",
                what,
                "give each dimension and category an id of its own".to_owned(),
            );
        }
    }
    for (category, place) in taxonomy.categories.iter().zip(&places.categories) {
        if !taxonomy.dimensions.iter().any(|d| d.id == category.dimension) {
            let what = format!("{} has no dimension {:?}", taxonomy.id, category.dimension);
            let help = nearest(&category.dimension, taxonomy.dimensions.iter().map(|d| d.id.as_str()));
            tell(
                place,
                "dimension",
                what,
                help.unwrap_or_else(|| "add a [[dimension]] with this id".to_owned()),
            );
        }
    }
    for (dimension, place) in taxonomy.dimensions.iter().zip(&places.dimensions) {
        let Some(count) = dimension.count else { continue };
        let members = taxonomy.categories.iter().filter(|c| c.dimension == dimension.id);
        // A dimension with a category that has no count cannot be summed.
        let Some(sum) = members.map(|c| c.count).sum::<Option<i64>>() else {
            continue;
        };
        if sum != count {
            let what = format!("the counts of its categories add up to {sum}, not {count}");
            tell(
                place,
                "count",
                what,
                "correct the counts, or leave out the ones that were not read".to_owned(),
            );
        }
    }
    for (sum, place) in taxonomy.sums.iter().zip(&places.sums) {
        check_sum(taxonomy, sum, place, tell);
    }
}

fn check_sum(
    taxonomy: &Taxonomy,
    sum: &FigureSum,
    place: &EntryPosition,
    tell: &mut dyn FnMut(&EntryPosition, &str, String, String),
) {
    let Some(total) = taxonomy.total_of(sum) else {
        let help = "give total = NUMBER, or population = KEY of a number in [population]".to_owned();
        tell(place, "population", "no total is given".to_owned(), help);
        return;
    };
    let members = taxonomy.categories.iter();
    let members = members.filter(|c| sum.dimension.as_ref().is_none_or(|dimension| &c.dimension == dimension));
    let figures: Vec<f64> = members.filter_map(|category| figure(category, &sum.of)).collect();
    let reached: f64 = figures.iter().sum();
    // A ten-thousandth of a unit covers rounding of binary numbers, not of a publication.
    if figures.is_empty() || (reached - total).abs() > sum.within + 1e-4 {
        let what = format!(
            "{:?} of {} categories adds up to {reached:.2}, not {total}",
            sum.of,
            figures.len()
        );
        tell(
            place,
            "of",
            what,
            "correct the figures, or say in within how far rounding goes".to_owned(),
        );
    }
}

fn figure(category: &TaxonomyCategory, key: &str) -> Option<f64> {
    match key {
        #[allow(clippy::cast_precision_loss)]
        "count" => category.count.map(|count| count as f64),
        "share_percent" => category.share_percent,
        _ => category.details.get(key)?.number(),
    }
}

/// Positions of the list entries of a taxonomy, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListPositions {
    pub(crate) dimensions: Vec<EntryPosition>,
    pub(crate) categories: Vec<EntryPosition>,
    pub(crate) sums: Vec<EntryPosition>,
}
