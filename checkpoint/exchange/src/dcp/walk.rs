//! Bounded traversal of the values of a foreign pickle.

use rankguard_pickle::{PickleTree, PickledValue, ValueId};

use rankguard_checkpoint::format::{Dtype, MAX_DIMS};

/// Tree and remaining step budget. A small pickle can reference one large list many times; the budget bounds that
/// cost.
pub(crate) struct TreeWalk<'t> {
    pub(crate) tree: &'t PickleTree<'t>,
    steps: u64,
}

/// Class or function by module and name.
pub(crate) type ClassName<'t> = (&'t str, &'t str);

/// Parts of a pickled object that the readers use.
#[derive(Clone, Copy)]
pub(crate) struct PickledObject<'t> {
    pub(crate) class: ClassName<'t>,
    pub(crate) args: ValueId,
    pub(crate) state: ValueId,
    pub(crate) pairs: ValueId,
}

impl<'t> TreeWalk<'t> {
    pub(crate) fn new(tree: &'t PickleTree<'t>, steps: u64) -> Self {
        Self { tree, steps }
    }

    /// Takes `steps` from the budget; returns `None` if it is spent.
    pub(crate) fn spend(&mut self, steps: usize) -> Option<()> {
        self.steps = self.steps.checked_sub(steps as u64 + 1)?;
        Some(())
    }

    /// Returns the complete text of a node; `None` if it is not UTF-8 text.
    pub(crate) fn text(&self, id: ValueId) -> Option<&'t str> {
        match self.tree.node(id) {
            PickledValue::Text(_) => std::str::from_utf8(self.tree.bytes(id)?).ok(),
            _ => None,
        }
    }

    /// Returns the class or function that a node references.
    pub(crate) fn global(&self, id: ValueId) -> Option<ClassName<'t>> {
        match self.tree.node(id) {
            PickledValue::Global { module, name } => Some((self.text(*module)?, self.text(*name)?)),
            _ => None,
        }
    }

    pub(crate) fn object(&self, id: ValueId) -> Option<PickledObject<'t>> {
        match self.tree.node(id) {
            PickledValue::Object {
                class,
                args,
                state,
                pairs,
                ..
            } => Some(PickledObject {
                class: self.global(*class)?,
                args: *args,
                state: *state,
                pairs: *pairs,
            }),
            _ => None,
        }
    }

    /// Returns the fields of an object of PyTorch's class `name`.
    pub(crate) fn fields(&mut self, id: ValueId, name: &str) -> Option<ObjectFields<'t>> {
        let made = self.object(id)?;
        let known = made.class.1 == name && (made.class.0 == "torch" || made.class.0.starts_with("torch."));
        if !known {
            return None;
        }
        let PickledValue::Dict(flat) = self.tree.node(made.state) else {
            // A dataclass without fields has no state.
            return self.tree.is_none(made.state).then_some(ObjectFields { flat: &[] });
        };
        self.spend(flat.len())?;
        Some(ObjectFields { flat })
    }

    /// Returns extents or offsets from a `torch.Size`, a tuple or a list.
    pub(crate) fn size(&mut self, id: ValueId) -> Option<Vec<u64>> {
        let id = match self.object(id) {
            Some(made) if made.class == ("torch", "Size") => match self.tree.items(made.args)? {
                [] => return Some(Vec::new()),
                [only] => *only,
                _ => return None,
            },
            Some(_) => return None,
            None => id,
        };
        let items = self.tree.items(id)?;
        self.spend(items.len())?;
        if items.len() > MAX_DIMS {
            return None;
        }
        items.iter().map(|item| self.whole(*item)).collect()
    }

    /// Returns an integer that is not negative.
    pub(crate) fn whole(&self, id: ValueId) -> Option<u64> {
        match self.tree.node(id) {
            PickledValue::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// Returns the element type of a node such as `torch.float32`; the inner error is the name of an unsupported
    /// type.
    pub(crate) fn dtype(&self, id: ValueId) -> Option<Result<Dtype, String>> {
        let (module, name) = self.global(id)?;
        (module == "torch").then(|| dtype_of(name).ok_or_else(|| name.chars().take(64).collect()))
    }
}

/// Fields of an object by name. The last of repeated fields counts, as in Python.
pub(crate) struct ObjectFields<'t> {
    flat: &'t [ValueId],
}

impl ObjectFields<'_> {
    pub(crate) fn get(&self, tree: &PickleTree<'_>, name: &str) -> Option<ValueId> {
        let mut pairs = self.flat.chunks_exact(2).rev();
        let found = pairs.find(|pair| tree.bytes(pair[0]) == Some(name.as_bytes()))?;
        Some(found[1])
    }
}

/// Returns the element type for PyTorch's name of it.
pub(crate) fn dtype_of(name: &str) -> Option<Dtype> {
    Some(match name {
        "bool" => Dtype::Bool,
        "uint8" => Dtype::U8,
        "int8" => Dtype::I8,
        "float8_e4m3fn" => Dtype::F8E4M3,
        "float8_e5m2" => Dtype::F8E5M2,
        "float8_e4m3fnuz" => Dtype::F8E4M3Fnuz,
        "float8_e5m2fnuz" => Dtype::F8E5M2Fnuz,
        "float8_e8m0fnu" => Dtype::F8E8M0,
        "uint16" => Dtype::U16,
        "int16" | "short" => Dtype::I16,
        "float16" | "half" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "uint32" => Dtype::U32,
        "int32" | "int" => Dtype::I32,
        "float32" | "float" => Dtype::F32,
        "uint64" => Dtype::U64,
        "int64" | "long" => Dtype::I64,
        "float64" | "double" => Dtype::F64,
        "complex64" | "cfloat" => Dtype::C64,
        "complex128" | "cdouble" => Dtype::C128,
        _ => return None,
    })
}
