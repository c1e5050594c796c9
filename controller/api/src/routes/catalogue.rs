//! Routes of the failure catalogue.

use rankguard_faults::explain_class;
use rankguard_model::ClassId;

use super::{StateRequest, json};
use crate::documents::{ClassDocument, Page, TaxonomyDocument};
use crate::problem::Problem;

pub(super) fn taxonomies(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let taxonomies = request.state.catalogue().taxonomies();
    json(&Page {
        items: taxonomies.map(TaxonomyDocument::of).collect(),
        next: None,
    })
}

pub(super) fn class(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let catalogue = request.state.catalogue();
    let found = explain_class(catalogue, &ClassId::from(request.name));
    let found = found.ok_or_else(|| {
        let problem = Problem::absent("class", request.name, "/api/v1/taxonomies");
        problem
            .known(catalogue.similar_classes(request.name))
            .hint("`rankguard taxonomy crosswalk` lists the classes")
    })?;
    json(&ClassDocument::of(found))
}
