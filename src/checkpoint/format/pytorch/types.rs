//! The closed list of names a pickle of tensors may use. Whatever is not in it is code.

use crate::tensor::DType;

/// A dtype as torch names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The dtype; none where it is not read here.
    pub dtype: Option<DType>,
    /// Bytes of one element.
    pub size: usize,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Global {
    /// `collections.OrderedDict`: called without arguments, an empty dict.
    OrderedDict,
    /// Called with storage, offset, size, stride, requires_grad, hooks and sometimes metadata: a tensor.
    Tensor,
    /// The same with the dtype before the metadata, for storages without one.
    TensorOfDtype,
    /// Called with a tensor first: that tensor.
    Parameter,
    /// `torch.Size`, called with a tuple: that tuple.
    Size,
    /// `torch.device`: of no matter here.
    Device,
    /// A dtype.
    DType(Element),
    /// The type of a storage; none for one of bytes.
    Storage(Option<Element>),
}

/// What `module.name` stands for; none where it is not in the list.
pub fn global(module: &str, name: &str) -> Option<Global> {
    Some(match (module, name) {
        ("collections", "OrderedDict") => Global::OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2") => Global::Tensor,
        ("torch._utils", "_rebuild_tensor_v3") => Global::TensorOfDtype,
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => Global::Parameter,
        ("torch.nn.parameter", "Parameter") => Global::Parameter,
        ("torch", "Size") => Global::Size,
        ("torch", "device") => Global::Device,
        ("torch.storage", "UntypedStorage") => Global::Storage(None),
        ("torch", other) => match other.strip_suffix("Storage") {
            Some(storage) => Global::Storage(Some(storage_element(storage)?)),
            None => Global::DType(element(other)?),
        },
        _ => return None,
    })
}

/// The dtype of `torch.<name>Storage`.
fn storage_element(name: &str) -> Option<Element> {
    element(match name {
        "Double" => "float64",
        "Float" => "float32",
        "Half" => "float16",
        "BFloat16" => "bfloat16",
        "Long" => "int64",
        "Int" => "int32",
        "Short" => "int16",
        "Char" => "int8",
        "Byte" => "uint8",
        "Bool" => "bool",
        "ComplexFloat" => "complex64",
        "ComplexDouble" => "complex128",
        _ => return None,
    })
}

/// The dtype `torch.<name>`.
fn element(name: &str) -> Option<Element> {
    let read = |dtype: DType| Some(Element { dtype: Some(dtype), size: dtype.size() });
    let unread = |size| Some(Element { dtype: None, size });
    match name {
        "float64" => read(DType::F64),
        "float32" => read(DType::F32),
        "float16" => read(DType::F16),
        "bfloat16" => read(DType::BF16),
        "int64" => read(DType::I64),
        "int32" => read(DType::I32),
        "int16" => read(DType::I16),
        "int8" => read(DType::I8),
        "uint64" => read(DType::U64),
        "uint32" => read(DType::U32),
        "uint16" => read(DType::U16),
        "uint8" => read(DType::U8),
        "bool" => read(DType::Bool),
        "float8_e4m3fn" | "float8_e5m2" | "float8_e4m3fnuz" | "float8_e5m2fnuz" | "float8_e8m0fnu" => unread(1),
        "complex64" => unread(8),
        "complex128" => unread(16),
        _ => None,
    }
}
