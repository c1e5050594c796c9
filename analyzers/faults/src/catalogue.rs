//! The catalogue: all knowledge of this crate, loaded from the built-in files and checked as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use rankguard_model::{ClassId, Mitigation, Role, Severity};
use serde::Deserialize;
use thiserror::Error;

use crate::class::Class;
use crate::code::{Code, CodeTable};
use crate::signature::Signature;
use crate::taxonomy::{OUTSIDE_SCOPE, Taxonomy};

/// The five taxonomies every class is placed in.
const TAXONOMIES: [(&str, &str); 5] = [
    (
        "taxonomies/zhang-icse2020.toml",
        include_str!("../data/taxonomies/zhang-icse2020.toml"),
    ),
    (
        "taxonomies/gao-icse-seip2023.toml",
        include_str!("../data/taxonomies/gao-icse-seip2023.toml"),
    ),
    (
        "taxonomies/jeon-atc2019.toml",
        include_str!("../data/taxonomies/jeon-atc2019.toml"),
    ),
    (
        "taxonomies/hu-nsdi2024.toml",
        include_str!("../data/taxonomies/hu-nsdi2024.toml"),
    ),
    (
        "taxonomies/kokolis-hpca2025.toml",
        include_str!("../data/taxonomies/kokolis-hpca2025.toml"),
    ),
];

macro_rules! signature_files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../data/signatures/", $name)))),*]
    };
}

const SIGNATURES: &[(&str, &str)] = &signature_files![
    "gpu.toml",
    "nvswitch.toml",
    "fabric-nic.toml",
    "host-kernel.toml",
    "storage.toml",
    "nccl.toml",
    "cuda.toml",
    "torch-launcher.toml",
    "torch.toml",
    "python.toml",
    "platform.toml",
    "network.toml",
    "scheduler.toml",
    "kubernetes.toml",
    "data.toml",
    "numerics.toml",
    "harmless.toml",
];

/// A mistake in the catalogue's files.
#[derive(Debug, Error)]
pub enum CatalogueError {
    /// A file does not have the expected form.
    #[error("{file}: {source}")]
    Form {
        /// The file.
        file: &'static str,
        /// What the parser says.
        source: Box<toml::de::Error>,
    },
    /// Something refers to an id that nothing has, or an id stands twice.
    #[error("{file}: {what}")]
    Reference {
        /// The file.
        file: &'static str,
        /// Which entry and which id.
        what: String,
    },
}

/// All classes, taxonomies, codes and signatures.
#[derive(Debug, Clone)]
pub struct Catalogue {
    classes: BTreeMap<ClassId, Class>,
    taxonomies: Vec<Taxonomy>,
    sources: BTreeMap<String, String>,
    actions: BTreeMap<String, String>,
    xids: CodeTable,
    sxids: CodeTable,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct ClassFile {
    clears: BTreeMap<String, String>,
    class: Vec<Leaf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leaf {
    id: ClassId,
    layer: String,
    crosswalk: String,
    definition: String,
    advice: String,
    #[serde(default)]
    causes: Vec<String>,
    role: Option<Role>,
    severity: Option<Severity>,
    clears: Option<String>,
    action: Option<String>,
    recommended_by: Option<Vec<String>>,
    #[serde(default)]
    map: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct CrosswalkFile {
    primary: Vec<String>,
    source: Vec<Named>,
    action: Vec<Action>,
    class: Vec<Broad>,
}

#[derive(Deserialize)]
struct Named {
    id: String,
    title: String,
}

#[derive(Deserialize)]
struct Action {
    id: String,
    definition: String,
}

#[derive(Deserialize)]
struct Broad {
    id: String,
    action: String,
    recommended_by: Vec<String>,
    #[serde(default)]
    map: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct CodeFile {
    code: Vec<Code>,
}

#[derive(Deserialize)]
struct SignatureFile {
    signature: Vec<Signature>,
}

fn parse<T: serde::de::DeserializeOwned>(file: &'static str, text: &str) -> Result<T, CatalogueError> {
    toml::from_str(text).map_err(|source| CatalogueError::Form {
        file,
        source: Box::new(source),
    })
}

fn wrong<T>(file: &'static str, what: String) -> Result<T, CatalogueError> {
    Err(CatalogueError::Reference { file, what })
}

impl Catalogue {
    /// The catalogue that is built into the program.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Catalogue> = OnceLock::new();
        BUILTIN.get_or_init(|| Self::load().expect("the built-in catalogue is checked by this crate's tests"))
    }

    /// Reads and checks the built-in files: ids are unique, every reference leads somewhere.
    pub fn load() -> Result<Self, CatalogueError> {
        let mut taxonomies = Vec::new();
        for (file, text) in TAXONOMIES {
            taxonomies.push(parse::<Taxonomy>(file, text)?);
        }
        let crosswalk: CrosswalkFile = parse("crosswalk.toml", include_str!("../data/crosswalk.toml"))?;
        let leaves: ClassFile = parse("classes.toml", include_str!("../data/classes.toml"))?;
        let sources: BTreeMap<_, _> = crosswalk
            .source
            .iter()
            .map(|s| (s.id.clone(), s.title.clone()))
            .collect();
        let actions: BTreeMap<_, _> = crosswalk
            .action
            .iter()
            .map(|a| (a.id.clone(), a.definition.clone()))
            .collect();
        if crosswalk.primary.iter().ne(taxonomies.iter().map(|t| &t.id)) {
            return wrong(
                "crosswalk.toml",
                "primary differs from the built-in taxonomies".to_owned(),
            );
        }
        let mut catalogue = Self {
            classes: BTreeMap::new(),
            taxonomies,
            sources,
            actions,
            xids: codes("xids.toml", include_str!("../data/xids.toml"))?,
            sxids: codes("sxids.toml", include_str!("../data/sxids.toml"))?,
            signatures: Vec::new(),
        };
        let broad: BTreeMap<_, _> = crosswalk.class.iter().map(|c| (c.id.as_str(), c)).collect();
        for leaf in leaves.class {
            let Some(broad) = broad.get(leaf.crosswalk.as_str()) else {
                return wrong(
                    "classes.toml",
                    format!("{}: no class {} in the crosswalk", leaf.id, leaf.crosswalk),
                );
            };
            let class = catalogue.join(leaf, broad, &leaves.clears)?;
            let id = class.id.clone();
            if catalogue.classes.insert(id.clone(), class).is_some() {
                return wrong("classes.toml", format!("{id} stands twice"));
            }
        }
        catalogue.load_signatures()?;
        catalogue.check_codes()?;
        Ok(catalogue)
    }

    fn join(&self, leaf: Leaf, broad: &Broad, clears: &BTreeMap<String, String>) -> Result<Class, CatalogueError> {
        let file = "classes.toml";
        let id = leaf.id;
        let action = leaf.action.clone().unwrap_or_else(|| broad.action.clone());
        if !self.actions.contains_key(&action) {
            return wrong(file, format!("{id}: no action {action} in the crosswalk"));
        }
        // A source recommends the action of the crosswalk; another action is our own unless the leaf says whose it is.
        let inherited = if leaf.action.is_none() {
            broad.recommended_by.clone()
        } else {
            Vec::new()
        };
        let recommended_by = leaf.recommended_by.unwrap_or(inherited);
        if let Some(unknown) = recommended_by.iter().find(|s| !self.sources.contains_key(*s)) {
            return wrong(file, format!("{id}: no source {unknown} in the crosswalk"));
        }
        let Some(clears) = leaf.clears.or_else(|| clears.get(&leaf.layer).cloned()) else {
            return wrong(file, format!("{id}: nothing clears layer {}", leaf.layer));
        };
        let mut taxonomies = BTreeMap::new();
        for taxonomy in &self.taxonomies {
            let mapped = leaf
                .map
                .get(&taxonomy.id)
                .or_else(|| broad.map.get(&taxonomy.id))
                .cloned();
            let places = mapped.unwrap_or_else(|| vec![domain_of(&taxonomy.id, &leaf.layer).to_owned()]);
            if let Some(unknown) = places.iter().find(|place| taxonomy.name_of(place).is_none()) {
                return wrong(file, format!("{id}: {} has no category {unknown}", taxonomy.id));
            }
            if places.is_empty() {
                return wrong(file, format!("{id}: empty list for {}; leave the key out", taxonomy.id));
            }
            taxonomies.insert(taxonomy.id.clone(), places);
        }
        if let Some(unknown) = leaf
            .map
            .keys()
            .chain(broad.map.keys())
            .find(|key| !taxonomies.contains_key(*key))
        {
            return wrong(file, format!("{id}: no taxonomy {unknown}"));
        }
        Ok(Class {
            id,
            layer: leaf.layer,
            definition: leaf.definition,
            causes: leaf.causes,
            role: leaf.role.unwrap_or(Role::Root),
            severity: leaf.severity.unwrap_or(Severity::Failure),
            mitigation: Mitigation {
                action,
                advice: leaf.advice,
                recommended_by,
            },
            clears,
            crosswalk: leaf.crosswalk,
            taxonomies,
        })
    }

    fn load_signatures(&mut self) -> Result<(), CatalogueError> {
        let mut ids = BTreeSet::new();
        for &(file, text) in SIGNATURES {
            for signature in parse::<SignatureFile>(file, text)?.signature {
                if !ids.insert(signature.id.clone()) {
                    return wrong(file, format!("signature {} stands twice", signature.id));
                }
                if !self.classes.contains_key(&signature.class) {
                    return wrong(
                        file,
                        format!("signature {}: no class {}", signature.id, signature.class),
                    );
                }
                if signature.literals.is_empty() || signature.literals.iter().any(|l| l.len() < 3) {
                    return wrong(
                        file,
                        format!("signature {}: needs literals of three bytes or more", signature.id),
                    );
                }
                if !(0.0..=1.0).contains(&signature.confidence) {
                    return wrong(file, format!("signature {}: confidence beyond 0 to 1", signature.id));
                }
                self.signatures.push(signature);
            }
        }
        Ok(())
    }

    fn check_codes(&self) -> Result<(), CatalogueError> {
        for (file, table) in [("xids.toml", &self.xids), ("sxids.toml", &self.sxids)] {
            if let Some(code) = table.iter().find(|code| !self.classes.contains_key(&code.class)) {
                return wrong(file, format!("{}: no class {}", code.number, code.class));
            }
        }
        Ok(())
    }

    /// A class; an `unknown-*` id that is not in the catalogue gets the class of its family, so that an unknown number still
    /// has advice (RG-10).
    pub fn class(&self, id: &ClassId) -> Option<&Class> {
        if let Some(class) = self.classes.get(id) {
            return Some(class);
        }
        let family = ["unknown-xid", "unknown-sxid", "unknown"].into_iter().find(|family| {
            let rest = id.as_str().strip_prefix(family);
            rest.is_some_and(|rest| rest.starts_with('-'))
        })?;
        self.classes.get(&ClassId::from(family))
    }

    /// All classes by id.
    pub fn classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.values()
    }

    /// The places of a class in the five primary taxonomies, most specific first. Every taxonomy has an entry for a class that
    /// is known; the map is empty for one that is not.
    pub fn taxonomies_of(&self, id: &ClassId) -> BTreeMap<String, Vec<String>> {
        self.class(id).map(|class| class.taxonomies.clone()).unwrap_or_default()
    }

    /// What to do about a class; for one that is not in the catalogue, what to do about an unknown failure.
    pub fn mitigation(&self, id: &ClassId) -> Mitigation {
        let class = self.class(id).or_else(|| self.classes.get(&ClassId::from("unknown")));
        class.map(|class| class.mitigation.clone()).unwrap_or_default()
    }

    /// The five primary taxonomies, oldest Microsoft study first.
    pub fn taxonomies(&self) -> &[Taxonomy] {
        &self.taxonomies
    }

    /// One of the primary taxonomies.
    pub fn taxonomy(&self, id: &str) -> Option<&Taxonomy> {
        self.taxonomies.iter().find(|taxonomy| taxonomy.id == id)
    }

    /// Name of a category of a taxonomy, as its authors print it.
    pub fn category_name(&self, taxonomy: &str, category: &str) -> Option<&str> {
        self.taxonomy(taxonomy)?.name_of(category)
    }

    /// Title of a source that recommends something.
    pub fn source_title(&self, id: &str) -> Option<&str> {
        self.sources.get(id).map(String::as_str)
    }

    /// What an action id means.
    pub fn action(&self, id: &str) -> Option<&str> {
        self.actions.get(id).map(String::as_str)
    }

    /// XIDs of the GPU driver.
    pub fn xids(&self) -> &CodeTable {
        &self.xids
    }

    /// SXids of the NVSwitch driver.
    pub fn sxids(&self) -> &CodeTable {
        &self.sxids
    }

    /// All signatures, in the order of their files.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }
}

fn codes(file: &'static str, text: &str) -> Result<CodeTable, CatalogueError> {
    let rows = parse::<CodeFile>(file, text)?.code;
    CodeTable::new(rows).or_else(|number| wrong(file, format!("{number} stands twice")))
}

/// Where a class without a category goes. Kokolis et al. name three domains beside their symptoms, and a layer says which; the
/// other studies have nothing wider than their categories.
fn domain_of(taxonomy: &str, layer: &str) -> &'static str {
    match (taxonomy, layer) {
        ("kokolis-hpca2025", "user-code" | "user-data" | "model-numerics" | "framework") => "user-program",
        ("kokolis-hpca2025", "hardware") => "hardware-infrastructure",
        ("kokolis-hpca2025", "network" | "storage" | "platform") => "system-software",
        _ => OUTSIDE_SCOPE,
    }
}
