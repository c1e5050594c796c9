//! Documents of the failure catalogue.

use rankguard_faults::{Explanation, Taxonomy};
use serde::Serialize;
use utoipa::ToSchema;

use super::word;

/// Published taxonomy of failures.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaxonomyDocument {
    id: String,
    /// Title of the publication.
    title: String,
    /// Short title by which it is known.
    short: String,
    /// `paper`, `trace` or `software`.
    kind: String,
    /// Criterion that divides its categories.
    axis: String,
    authors: Vec<String>,
    venue: String,
    year: u32,
    url: String,
    categories: Vec<CategoryDocument>,
}

/// Category of a taxonomy.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CategoryDocument {
    id: String,
    /// Name as the authors print it.
    name: String,
    /// Id of its group.
    dimension: String,
    definition: String,
}

/// Failure class with its meaning, its action and its places in the literature.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClassDocument {
    id: String,
    aliases: Vec<String>,
    layer: String,
    /// `root-cause`, `symptom` or `outcome`.
    kind: String,
    /// Default role in a failure.
    role: String,
    meaning: String,
    parent: Option<String>,
    siblings: Vec<String>,
    children: Vec<String>,
    /// Usual causes, the most frequent first.
    causes: Vec<String>,
    /// Id of the first action.
    action: String,
    /// Definition of the first action.
    action_means: String,
    advice: String,
    /// Ids of the follow-up actions.
    then: Vec<String>,
    /// Titles of the sources that recommend the action.
    recommended_by: Vec<String>,
    /// `published` or `inferred`.
    basis: String,
    /// First actions that other sources recommend.
    alternatives: Vec<ActionDocument>,
    notes: String,
    /// Condition that clears the class.
    clears: String,
    /// Categories in published taxonomies.
    taxonomies: Vec<PlaceDocument>,
    signatures: Vec<SignatureDocument>,
    /// Numbered driver events that indicate the class.
    codes: Vec<String>,
    sources: Vec<SourceDocument>,
}

/// Action that another source recommends.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActionDocument {
    source: String,
    action: String,
}

/// Category of a class in a published taxonomy.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlaceDocument {
    taxonomy: String,
    title: String,
    citation: String,
    url: String,
    category: String,
    name: String,
    /// Published figures; empty if none were recorded.
    figures: String,
}

/// Signature that indicates a class.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignatureDocument {
    id: String,
    example: String,
    source: String,
}

/// Source with title and address.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceDocument {
    title: String,
    url: String,
}

impl TaxonomyDocument {
    pub(crate) fn of(taxonomy: &Taxonomy) -> Self {
        let categories = taxonomy.categories.iter().map(|category| CategoryDocument {
            id: category.id.clone(),
            name: category.name.clone(),
            dimension: category.dimension.clone(),
            definition: category.definition.clone(),
        });
        Self {
            id: taxonomy.id.clone(),
            title: taxonomy.title.clone(),
            short: taxonomy.short.clone(),
            kind: taxonomy.kind.clone(),
            axis: taxonomy.axis.clone(),
            authors: taxonomy.citation.authors.clone(),
            venue: taxonomy.citation.venue.clone(),
            year: taxonomy.citation.year,
            url: taxonomy.citation.url.clone(),
            categories: categories.collect(),
        }
    }
}

impl ClassDocument {
    pub(crate) fn of(found: Explanation) -> Self {
        let names = |ids: &[rankguard_model::ClassId]| ids.iter().map(ToString::to_string).collect();
        let alternatives = found.alternatives.into_iter().map(|other| ActionDocument {
            source: other.source,
            action: other.action,
        });
        let taxonomies = found.places.into_iter().map(|place| PlaceDocument {
            taxonomy: place.taxonomy,
            title: place.title,
            citation: place.citation,
            url: place.url,
            category: place.category,
            name: place.name,
            figures: place.figures,
        });
        let signatures = found.signatures.into_iter().map(|signature| SignatureDocument {
            id: signature.id,
            example: signature.example,
            source: signature.source,
        });
        let sources = found.sources.into_iter().map(|source| SourceDocument {
            title: source.title,
            url: source.url,
        });
        Self {
            id: found.class.to_string(),
            aliases: names(&found.aliases),
            layer: found.layer,
            kind: word(&found.kind),
            role: word(&found.role),
            meaning: found.meaning,
            parent: found.parent.map(|parent| parent.to_string()),
            siblings: names(&found.siblings),
            children: names(&found.children),
            causes: found.causes,
            action: found.action,
            action_means: found.action_means,
            advice: found.advice,
            then: found.then,
            recommended_by: found.recommended_by,
            basis: word(&found.basis),
            alternatives: alternatives.collect(),
            notes: found.notes,
            clears: found.clears,
            taxonomies: taxonomies.collect(),
            signatures: signatures.collect(),
            codes: found.codes,
            sources: sources.collect(),
        }
    }
}
