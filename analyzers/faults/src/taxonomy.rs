//! Published taxonomies: what their authors call a failure.

use serde::Deserialize;

/// Category that a class gets in a taxonomy that has no place for it. It is ours, not the authors': it says that the study
/// looked at other failures, which is more useful to a reader than a forced name.
pub const OUTSIDE_SCOPE: &str = "outside-scope";

/// One published taxonomy.
#[derive(Debug, Clone, Deserialize)]
pub struct Taxonomy {
    /// Our id of it (`gao-icse-seip2023`).
    pub id: String,
    /// Title of the publication.
    pub title: String,
    /// A few words by which people know it.
    pub short: String,
    /// Where and when it was published.
    pub citation: Citation,
    /// Its upper level: groups or domains.
    #[serde(rename = "dimension", default)]
    pub dimensions: Vec<Dimension>,
    /// Its categories.
    #[serde(rename = "category", default)]
    pub categories: Vec<Category>,
}

/// Where a taxonomy was published.
#[derive(Debug, Clone, Deserialize)]
pub struct Citation {
    /// Its authors.
    pub authors: Vec<String>,
    /// Conference or site.
    pub venue: String,
    /// Year.
    pub year: u32,
    /// Address.
    pub url: String,
}

/// A group of categories, or a domain that a failure can lie in.
#[derive(Debug, Clone, Deserialize)]
pub struct Dimension {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// In our words.
    pub definition: String,
}

/// One category of a taxonomy.
#[derive(Debug, Clone, Deserialize)]
pub struct Category {
    /// Its id within the taxonomy.
    pub id: String,
    /// Its name as the authors print it.
    pub name: String,
    /// The dimension it belongs to.
    pub dimension: String,
    /// In our words.
    pub definition: String,
}

impl Taxonomy {
    /// Name of a category, or of a dimension where a class is placed in a domain only.
    pub fn name_of(&self, id: &str) -> Option<&str> {
        if id == OUTSIDE_SCOPE {
            return Some("outside the scope of this study");
        }
        let category = self.categories.iter().find(|c| c.id == id).map(|c| c.name.as_str());
        category.or_else(|| self.dimensions.iter().find(|d| d.id == id).map(|d| d.name.as_str()))
    }

    /// The category with this id.
    pub fn category(&self, id: &str) -> Option<&Category> {
        self.categories.iter().find(|c| c.id == id)
    }
}
