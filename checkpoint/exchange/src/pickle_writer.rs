//! Writer of pickles (protocol 2) with the opcodes that `torch.load(weights_only=True)` accepts.

use rankguard_checkpoint::format::Dtype;

use crate::python_value::PythonValue;

/// Source of the bytes of a storage record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorageSource {
    /// Bytes in memory.
    Inline(Vec<u8>),
    /// Tensor of the checkpoint: its number in the order of the export, and its size in bytes.
    Streamed { number: usize, bytes: u64 },
}

/// Element type, shape and storage of a tensor.
pub(crate) struct TensorSpec<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [u64],
    pub(crate) source: StorageSource,
}

/// Writer of one pickle; its storages are named `0`, `1`, ... in order of use.
#[derive(Debug)]
pub(crate) struct PickleWriter {
    bytes: Vec<u8>,
    storages: Vec<StorageSource>,
}

/// Callback that looks up a tensor by name.
pub(crate) type TensorLookup<'f, 't> = &'f mut dyn FnMut(&str) -> Option<TensorSpec<'t>>;

impl PickleWriter {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0x80, 2],
            storages: Vec::new(),
        }
    }

    /// Returns the finished pickle and its storages.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Vec<StorageSource>) {
        self.bytes.push(b'.');
        (self.bytes, self.storages)
    }

    pub(crate) fn op(&mut self, code: u8) {
        self.bytes.push(code);
    }

    /// Writes a reference to `module.name`, which the reader resolves.
    pub(crate) fn global(&mut self, module: &str, name: &str) {
        self.bytes.extend(format!("c{module}\n{name}\n").as_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.op(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    pub(crate) fn int(&mut self, number: i64) {
        match (u8::try_from(number), i32::try_from(number)) {
            (Ok(small), _) => self.bytes.extend([b'K', small]),
            (_, Ok(word)) => {
                self.op(b'J');
                self.bytes.extend(word.to_le_bytes());
            }
            _ => self.big_int(&number.to_le_bytes()),
        }
    }

    pub(crate) fn number(&mut self, number: u64) {
        match i64::try_from(number) {
            Ok(number) => self.int(number),
            Err(_) => self.big_int(&[number.to_le_bytes().as_slice(), &[0]].concat()),
        }
    }

    fn big_int(&mut self, bytes: &[u8]) {
        self.bytes.extend([0x8a, bytes.len() as u8]);
        self.bytes.extend(bytes);
    }

    pub(crate) fn bool(&mut self, flag: bool) {
        self.op(if flag { 0x88 } else { 0x89 });
    }

    pub(crate) fn tuple_of_numbers(&mut self, numbers: &[u64]) {
        self.op(b'(');
        numbers.iter().for_each(|number| self.number(*number));
        self.op(b't');
    }

    /// Writes an instance of `module.class`; `fill` writes its attributes as pairs of key and
    /// value.
    pub(crate) fn object(&mut self, module: &str, class: &str, fill: impl FnOnce(&mut Self)) {
        self.global(module, class);
        self.bytes.extend(b")\x81}(");
        fill(self);
        self.bytes.extend(b"ub");
    }

    /// Writes a call of `torch._utils._rebuild_tensor_v2` or `_v3` with a separate storage.
    pub(crate) fn tensor(&mut self, spec: TensorSpec<'_>) {
        let typed = typed_storage(spec.dtype);
        let function = if typed.is_some() {
            "_rebuild_tensor_v2"
        } else {
            "_rebuild_tensor_v3"
        };
        let elements: u64 = spec.shape.iter().product();
        self.global("torch._utils", function);
        self.bytes.extend(b"((");
        self.text("storage");
        match typed {
            Some(class) => self.global("torch", class),
            None => self.global("torch.storage", "UntypedStorage"),
        }
        self.text(&self.storages.len().to_string());
        self.text("cpu");
        self.number(if typed.is_some() {
            elements
        } else {
            elements * spec.dtype.bytes()
        });
        self.bytes.extend(b"tQK\0");
        self.tuple_of_numbers(spec.shape);
        self.tuple_of_numbers(&strides(spec.shape));
        self.bool(false);
        self.global("collections", "OrderedDict");
        self.bytes.extend(b")R");
        if typed.is_none() {
            self.global("torch", torch_name(spec.dtype));
        }
        self.bytes.extend(b"tR");
        self.storages.push(spec.source);
    }

    /// Writes a nested value; tensors that `find` does not know become `None`.
    pub(crate) fn value(&mut self, value: &PythonValue, find: TensorLookup<'_, '_>) {
        match value {
            PythonValue::None => self.op(b'N'),
            PythonValue::Bool(flag) => self.bool(*flag),
            PythonValue::Int(number) => self.int(*number),
            PythonValue::BigInt(bytes) => self.big_int(bytes),
            PythonValue::Float(number) => {
                self.op(b'G');
                self.bytes.extend(number.to_be_bytes());
            }
            PythonValue::Text(text) => self.text(text),
            PythonValue::Bytes(bytes) => self.byte_string(bytes),
            PythonValue::List(items) => self.sequence(b"](", items, b'e', find),
            PythonValue::Tuple(items) => self.sequence(b"(", items, b't', find),
            PythonValue::Dict(pairs) => {
                self.bytes.extend(b"}(");
                for (key, item) in pairs {
                    self.value(key, find);
                    self.value(item, find);
                }
                self.op(b'u');
            }
            PythonValue::Tensor(name) => match find(name) {
                Some(spec) => self.tensor(spec),
                None => self.op(b'N'),
            },
            PythonValue::Inline(inline) => self.tensor(TensorSpec {
                dtype: inline.dtype,
                shape: &inline.shape,
                source: StorageSource::Inline(inline.bytes.clone()),
            }),
            PythonValue::PerRank(ranks) => {
                self.bytes.extend(b"}(");
                for (rank, item) in ranks {
                    self.int(i64::from(*rank));
                    self.value(item, find);
                }
                self.op(b'u');
            }
        }
    }

    fn sequence(&mut self, open: &[u8], items: &[PythonValue], close: u8, find: TensorLookup<'_, '_>) {
        self.bytes.extend(open);
        for item in items {
            self.value(item, find);
        }
        self.op(close);
    }

    /// Writes bytes as Latin-1 text, as Python does, because protocol 2 has no opcode for bytes.
    fn byte_string(&mut self, bytes: &[u8]) {
        self.global("_codecs", "encode");
        self.op(b'(');
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        self.text(&text);
        self.text("latin1");
        self.bytes.extend(b"tR");
    }
}

/// Returns the strides of a contiguous tensor in elements, as PyTorch computes them.
fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].max(1);
    }
    strides
}

/// Returns the class of the typed storage; types without one are saved over an untyped storage.
fn typed_storage(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::Bool => Some("BoolStorage"),
        Dtype::U8 => Some("ByteStorage"),
        Dtype::I8 => Some("CharStorage"),
        Dtype::I16 => Some("ShortStorage"),
        Dtype::F16 => Some("HalfStorage"),
        Dtype::Bf16 => Some("BFloat16Storage"),
        Dtype::I32 => Some("IntStorage"),
        Dtype::F32 => Some("FloatStorage"),
        Dtype::I64 => Some("LongStorage"),
        Dtype::F64 => Some("DoubleStorage"),
        Dtype::C64 => Some("ComplexFloatStorage"),
        Dtype::C128 => Some("ComplexDoubleStorage"),
        _ => None,
    }
}

/// Returns the name of the element type in `torch`.
pub(crate) fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "bool",
        Dtype::U8 => "uint8",
        Dtype::I8 => "int8",
        Dtype::F8E4M3 => "float8_e4m3fn",
        Dtype::F8E5M2 => "float8_e5m2",
        Dtype::U16 => "uint16",
        Dtype::I16 => "int16",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
        Dtype::U32 => "uint32",
        Dtype::I32 => "int32",
        Dtype::F32 => "float32",
        Dtype::U64 => "uint64",
        Dtype::I64 => "int64",
        Dtype::F64 => "float64",
        Dtype::C64 => "complex64",
        Dtype::C128 => "complex128",
        Dtype::F8E4M3Fnuz => "float8_e4m3fnuz",
        Dtype::F8E5M2Fnuz => "float8_e5m2fnuz",
        Dtype::F8E8M0 => "float8_e8m0fnu",
    }
}
