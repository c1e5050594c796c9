//! Export of a committed checkpoint as safetensors.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rankguard_checkpoint::format::{Digest, ShardIndex, TensorBox};
use rankguard_checkpoint::{Checkpoint, Store};
use serde_json::Value;

use super::header::{HeaderTensor, MAX_HEADER_BYTES, SafetensorsHeader};
use super::{INDEX_FILE, keys};
use crate::export::{ExportReport, ExportRequest, NameSelection};
use crate::files::{self, StagedOutput};
use crate::pieces::stream;
use crate::state_tree::whole_tensors;
use crate::{ExchangeError, ProgressCallback};

/// Maximum length in bytes of the states that are stored in a file.
const MAX_STATES: usize = 1 << 20;

/// Writes every tensor of a checkpoint at its global shape, checked against the digests of its chunks (RG-2). The file
/// or directory appears under its name once all of it is on disk.
pub fn export(
    store: &Store,
    checkpoint: &Checkpoint,
    request: &ExportRequest<'_>,
    progress: ProgressCallback<'_>,
) -> Result<ExportReport, ExchangeError> {
    let wanted = wholes(&checkpoint.indexes, &request.selection)?;
    let is_file = request.out.extension().is_some_and(|ending| ending == "safetensors");
    let groups = if is_file {
        vec![wanted]
    } else {
        groups(wanted, request.file_bytes)
    };
    let draft = StagedOutput::of(request.out, request.is_replacing)?;
    let names = names(&draft.path, is_file, groups.len());
    if !is_file {
        fs::create_dir(&draft.path).map_err(ExchangeError::io("create", &draft.path))?;
    }
    let total = groups.iter().flatten().filter_map(TensorBox::bytes).sum();
    let mut writer = SafetensorsWriter {
        store,
        checkpoint,
        common: common(checkpoint),
        selection: &request.selection,
        exported: ExportReport::default(),
        done: 0,
        total,
        progress,
    };
    // States are written only with the complete set of tensors.
    if request.selection.is_all() {
        writer.states();
    }
    let mut weight_map = BTreeMap::new();
    for (path, group) in names.iter().zip(groups) {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
        weight_map.extend(
            group
                .iter()
                .map(|boxed| (exported_name(boxed, &request.selection), file.clone())),
        );
        writer.file(path, group)?;
    }
    if !is_file {
        if names.len() > 1 {
            let index = serde_json::json!({"metadata": {"total_size": total}, "weight_map": weight_map});
            files::whole_file(&draft.path.join(INDEX_FILE), index.to_string().as_bytes())?;
        }
        files::sync_dir(&draft.path)?;
    }
    let mut exported = writer.exported;
    exported.files = final_names(&names, request.out, is_file);
    draft.put()?;
    Ok(exported)
}

/// Returns every selected tensor in the order of the format's own writer: widest elements first, then by name.
fn wholes(indexes: &[ShardIndex], selection: &NameSelection) -> Result<Vec<TensorBox>, ExchangeError> {
    let known = whole_tensors(indexes);
    let is_selected = |boxed: &&TensorBox| selection.exported_name(&boxed.name).is_some();
    let mut found: Vec<TensorBox> = known.values().filter(is_selected).cloned().collect();
    if found.is_empty() && !selection.is_all() {
        return Err(selection.no_match(known.keys().map(String::as_str)));
    }
    if let Some(taken) = found
        .iter()
        .find(|boxed| exported_name(boxed, selection) == "__metadata__")
    {
        let what = format!("a tensor called {} cannot stand in a safetensors file", taken.name);
        return Err(ExchangeError::Unfit { what });
    }
    let width = |boxed: &TensorBox| std::cmp::Reverse(boxed.dtype.bytes());
    found.sort_by(|a, b| (width(a), &a.name).cmp(&(width(b), &b.name)));
    Ok(found)
}

/// Splits a list of tensors, sorted by name, where a file would grow beyond `most` bytes.
fn groups(mut wanted: Vec<TensorBox>, most: u64) -> Vec<Vec<TensorBox>> {
    if wanted.iter().filter_map(TensorBox::bytes).fold(0, u64::saturating_add) <= most {
        return vec![wanted];
    }
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut groups = vec![Vec::new()];
    let mut filled = 0u64;
    for boxed in wanted {
        let bytes = boxed.bytes().unwrap_or(0);
        let open = groups.last_mut().expect("there is one from the start");
        if !open.is_empty() && filled.saturating_add(bytes) > most {
            groups.push(vec![boxed]);
            filled = bytes;
        } else {
            open.push(boxed);
            filled = filled.saturating_add(bytes);
        }
    }
    groups
}

fn names(draft: &Path, is_file: bool, count: usize) -> Vec<PathBuf> {
    match (is_file, count) {
        (true, _) => vec![draft.to_owned()],
        (false, 1) => vec![draft.join("model.safetensors")],
        (false, _) => (1..=count)
            .map(|nth| draft.join(format!("model-{nth:05}-of-{count:05}.safetensors")))
            .collect(),
    }
}

fn final_names(names: &[PathBuf], out: &Path, is_file: bool) -> Vec<PathBuf> {
    let within = names.iter().filter_map(|name| name.file_name());
    if is_file {
        vec![out.to_owned()]
    } else {
        within.map(|name| out.join(name)).collect()
    }
}

/// Returns the metadata on the origin of a file; model libraries check `format` before they load one.
fn common(checkpoint: &Checkpoint) -> BTreeMap<String, String> {
    let manifest = &checkpoint.manifest;
    BTreeMap::from([
        ("format".to_owned(), "pt".to_owned()),
        ("rankguard.job".to_owned(), manifest.job.to_string()),
        ("rankguard.step".to_owned(), manifest.step.to_string()),
        ("rankguard.generation".to_owned(), manifest.generation.0.to_string()),
        ("rankguard.world_size".to_owned(), manifest.world_size.to_string()),
        (
            "rankguard.manifest".to_owned(),
            Digest::of(&manifest.to_bytes()).to_string(),
        ),
    ])
}

struct SafetensorsWriter<'a> {
    store: &'a Store,
    checkpoint: &'a Checkpoint,
    common: BTreeMap<String, String>,
    selection: &'a NameSelection,
    exported: ExportReport,
    done: u64,
    total: u64,
    progress: ProgressCallback<'a>,
}

impl SafetensorsWriter<'_> {
    fn states(&mut self) {
        let states: Vec<&Value> = self.checkpoint.indexes.iter().map(|index| &index.state).collect();
        if states.iter().all(|state| state.is_null()) {
            return;
        }
        let text = serde_json::json!(states).to_string();
        if text.len() <= MAX_STATES {
            self.common.insert(keys::STATES.to_owned(), text);
        } else {
            self.exported.problems.push(crate::ImportProblem {
                entry: "state".to_owned(),
                what: format!(
                    "all ranks' states are {} bytes, more than {MAX_STATES}; left out",
                    text.len()
                ),
            });
        }
    }

    fn file(&mut self, path: &Path, group: Vec<TensorBox>) -> Result<(), ExchangeError> {
        let mut header = SafetensorsHeader {
            metadata: self.common.clone(),
            tensors: places(&group, self.selection),
        };
        // The header length must be fixed before the digests are known, so zeros of the same length take their place.
        let nothing = vec!["0".repeat(64); group.len()];
        let length = with_digests(&mut header, &nothing).len();
        if length as u64 > MAX_HEADER_BYTES {
            let what = format!(
                "the header would have {length} bytes, more than {MAX_HEADER_BYTES}: too many tensors for one file"
            );
            return Err(ExchangeError::Unfit { what });
        }
        let mut file = files::new_file(path)?;
        let failed = ExchangeError::io("write", path);
        file.write_all(&vec![b' '; length]).map_err(failed)?;
        let digests = self.tensors(&file, path, &group)?;
        let written = file.write_all_at(&with_digests(&mut header, &digests), 0);
        written
            .and_then(|()| file.sync_all())
            .map_err(ExchangeError::io("write", path))
    }

    /// Writes the tensors back to back; returns the digest of each.
    fn tensors(&mut self, file: &File, path: &Path, group: &[TensorBox]) -> Result<Vec<String>, ExchangeError> {
        let mut digests = vec![blake3::hash(&[]).to_hex().to_string(); group.len()];
        let mut hasher = blake3::Hasher::new();
        let mut current = None;
        let mut out = file;
        let done = &mut self.done;
        let total = self.total;
        let progress = &mut *self.progress;
        let repairs = stream(self.store, self.checkpoint, group, &mut |nth, bytes| {
            if current != Some(nth) {
                current = Some(nth);
                hasher.reset();
            }
            hasher.update(bytes);
            digests[nth] = hasher.finalize().to_hex().to_string();
            out.write_all(bytes).map_err(ExchangeError::io("write", path))?;
            *done += bytes.len() as u64;
            progress(*done, total);
            Ok(())
        })?;
        self.exported.repairs.extend(repairs);
        self.exported.tensors += group.len() as u64;
        self.exported.bytes += group.iter().filter_map(TensorBox::bytes).sum::<u64>();
        Ok(digests)
    }
}

fn exported_name(boxed: &TensorBox, selection: &NameSelection) -> String {
    selection.exported_name(&boxed.name).unwrap_or(&boxed.name).to_owned()
}

/// Assigns offsets to the tensors, back to back.
fn places(group: &[TensorBox], selection: &NameSelection) -> Vec<HeaderTensor> {
    let mut start = 0u64;
    let place = |boxed: &TensorBox| {
        let end = start.saturating_add(boxed.bytes().unwrap_or(0));
        let tensor = HeaderTensor {
            name: exported_name(boxed, selection),
            dtype: Ok(boxed.dtype),
            shape: boxed.shape.clone(),
            start,
            end,
        };
        start = end;
        tensor
    };
    group.iter().map(place).collect()
}

/// Serialises the header with these digests.
fn with_digests(header: &mut SafetensorsHeader, digests: &[String]) -> Vec<u8> {
    let names = header.tensors.iter().map(|tensor| &tensor.name);
    let by_name: BTreeMap<&String, &String> = names.zip(digests).collect();
    let text = serde_json::json!(by_name).to_string();
    header.metadata.insert(keys::DIGESTS.to_owned(), text);
    header.to_bytes()
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::format::Dtype;

    use super::*;

    #[test]
    fn files_are_cut_by_size_and_a_tensor_is_never_split() {
        let boxed = |name: &str, bytes| TensorBox::whole(name, Dtype::U8, vec![bytes]);
        let all = vec![boxed("c", 30), boxed("a", 60), boxed("b", 50), boxed("d", 500)];
        assert_eq!(groups(all.clone(), 640).len(), 1);
        let cut: Vec<Vec<String>> = groups(all, 100)
            .into_iter()
            .map(|group| group.into_iter().map(|boxed| boxed.name).collect())
            .collect();
        assert_eq!(cut, [vec!["a"], vec!["b", "c"], vec!["d"]]);
    }
}
