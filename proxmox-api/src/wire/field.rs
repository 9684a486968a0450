/// What a field of an answer held. Keeps "it is not there" and "it makes no sense" apart, because a decision about
/// protection must not take the second for the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Field<T> {
    /// The field was not in the answer.
    #[default]
    Absent,
    /// The field could be read.
    Value(T),
    /// The field was there and held something this crate cannot read as a `T`.
    Unreadable,
}

impl<T> Field<T> {
    /// The value, if there is a readable one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Unreadable => None,
        }
    }

    /// Fills in PVE's default for an absent field; `None` only when the field could not be read.
    pub fn or_default(self, default: T) -> Option<T> {
        match self {
            Self::Absent => Some(default),
            Self::Value(value) => Some(value),
            Self::Unreadable => None,
        }
    }

    /// Whether the field was there and could not be read.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable)
    }

    pub(crate) fn and_then<U>(self, read: impl FnOnce(T) -> Option<U>) -> Field<U> {
        match self {
            Self::Absent => Field::Absent,
            Self::Value(value) => read(value).map_or(Field::Unreadable, Field::Value),
            Self::Unreadable => Field::Unreadable,
        }
    }
}
