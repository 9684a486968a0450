use super::Scalar;

/// Reads a counter: an integer or a decimal, as a number or as text. A fraction is dropped (averages of byte
/// counts come as decimals); negative and non-finite numbers and those above `u64` are no counter.
pub(crate) fn integer(value: &Scalar) -> Option<u64> {
    let text = numeric(value)?;
    if let Ok(exact) = text.parse::<u64>() {
        return Some(exact);
    }
    let decimal = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)?;
    // 2^64 itself is representable as f64 and would be one too many.
    (decimal < 18_446_744_073_709_551_616.0).then_some(decimal as u64)
}

/// Reads a decimal, as a number or as text; never NaN or infinite.
pub(crate) fn float(value: &Scalar) -> Option<f64> {
    numeric(value)?.parse::<f64>().ok().filter(|n| n.is_finite())
}

fn numeric(value: &Scalar) -> Option<&str> {
    match value {
        Scalar::Number(text) => Some(text),
        Scalar::Text(text) => Some(text.trim()),
        Scalar::Null | Scalar::Bool(_) | Scalar::Other => None,
    }
}
