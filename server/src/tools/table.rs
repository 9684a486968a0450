//! What a list or a record shows, said once: a table's columns make the output schema, the rows, and what `fields` may name.

use std::borrow::Borrow;

use serde_json::{Map, Value, json};

use super::paging::Paging;
use crate::catalog::HandlerResult;
use crate::stack::{ToolFailure, shape};

/// One column: its name, what it is, and how it is read. The reader's type is the JSON type, so that a schema cannot promise
/// another one.
pub struct Column<T> {
    name: &'static str,
    what: &'static str,
    read: Read<T>,
}

enum Read<T> {
    Text(fn(&T) -> Option<String>),
    Integer(fn(&T) -> Option<u64>),
    Number(fn(&T) -> Option<f64>),
    Flag(fn(&T) -> Option<bool>),
    Texts(fn(&T) -> Vec<String>),
    Object(fn(&T) -> Option<Map<String, Value>>),
    Objects(fn(&T) -> Vec<Value>),
}

/// A column of text; `what` may be empty where the name says it all.
pub const fn text<T>(name: &'static str, what: &'static str, read: fn(&T) -> Option<String>) -> Column<T> {
    Column { name, what, read: Read::Text(read) }
}

/// A column of whole numbers.
pub const fn integer<T>(name: &'static str, what: &'static str, read: fn(&T) -> Option<u64>) -> Column<T> {
    Column { name, what, read: Read::Integer(read) }
}

/// A column of numbers.
pub const fn number<T>(name: &'static str, what: &'static str, read: fn(&T) -> Option<f64>) -> Column<T> {
    Column { name, what, read: Read::Number(read) }
}

/// A column of true and false.
pub const fn flag<T>(name: &'static str, what: &'static str, read: fn(&T) -> Option<bool>) -> Column<T> {
    Column { name, what, read: Read::Flag(read) }
}

/// A column of lists of text.
pub const fn texts<T>(name: &'static str, what: &'static str, read: fn(&T) -> Vec<String>) -> Column<T> {
    Column { name, what, read: Read::Texts(read) }
}

/// A column of objects.
pub const fn object<T>(
    name: &'static str,
    what: &'static str,
    read: fn(&T) -> Option<Map<String, Value>>,
) -> Column<T> {
    Column { name, what, read: Read::Object(read) }
}

/// A column of lists of objects.
pub const fn objects<T>(name: &'static str, what: &'static str, read: fn(&T) -> Vec<Value>) -> Column<T> {
    Column { name, what, read: Read::Objects(read) }
}

impl<T> Column<T> {
    /// The cell of `row`; `None` where there is nothing to show, which leaves the column out.
    fn cell(&self, row: &T) -> Option<Value> {
        match self.read {
            Read::Text(read) => read(row).map(Value::from),
            Read::Integer(read) => read(row).map(Value::from),
            // What is no number in JSON is left out.
            Read::Number(read) => read(row).and_then(serde_json::Number::from_f64).map(Value::from),
            Read::Flag(read) => read(row).map(Value::from),
            Read::Texts(read) => Some(read(row).into()),
            Read::Object(read) => read(row).map(Value::Object),
            Read::Objects(read) => Some(read(row).into()),
        }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.read {
            Read::Text(_) => json!({"type": "string"}),
            Read::Integer(_) => json!({"type": "integer"}),
            Read::Number(_) => json!({"type": "number"}),
            Read::Flag(_) => json!({"type": "boolean"}),
            Read::Texts(_) => json!({"type": "array", "items": {"type": "string"}}),
            Read::Object(_) => json!({"type": "object"}),
            Read::Objects(_) => json!({"type": "array", "items": {"type": "object"}}),
        };
        if !self.what.is_empty() {
            schema["description"] = self.what.into();
        }
        schema
    }
}

/// The columns of a list or the fields of a record.
pub struct Table<T: 'static>(pub &'static [Column<T>]);

impl<T> std::fmt::Debug for Column<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Column").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Table").field(&self.0).finish()
    }
}

/// How long a list is and whether it goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many there are in all; `None` where that is not known or not for this caller.
    pub total: Option<u64>,
    /// Whether there is more behind the rows given, whatever `total` says.
    pub more: bool,
    /// Rows of the cluster's answer that could not be read; `None` where the rows come from no cluster.
    pub skipped: Option<u64>,
}

impl<T> Table<T> {
    /// One record.
    pub fn record(&self, row: &T) -> Map<String, Value> {
        row_of(self.0.iter(), row)
    }

    /// The page of `rows`, all of them and sorted, that was asked for.
    ///
    /// # Errors
    /// `fields` names a column that is not there, or a single row exceeds the cap of a result.
    pub fn page<R: Borrow<T>>(&self, rows: &[R], skipped: usize, paging: &Paging) -> HandlerResult {
        let (rows, extent) = part(rows, skipped, paging);
        self.window(rows, extent, paging)
    }

    /// [`Table::page`] of what becomes a row by `row`, which is called for the rows of the page only.
    ///
    /// # Errors
    /// See [`Table::page`].
    pub fn page_by<R>(
        &self,
        rows: &[R],
        row: impl Fn(&R) -> T,
        skipped: usize,
        paging: &Paging,
    ) -> HandlerResult {
        let columns = self.chosen(paging)?;
        let (rows, extent) = part(rows, skipped, paging);
        assemble(rows.iter().map(|place| row_of(columns.iter().copied(), &row(place))), extent, paging)
    }

    /// Rows that begin at the page's offset already.
    ///
    /// # Errors
    /// See [`Table::page`].
    pub fn window<R: Borrow<T>>(&self, rows: &[R], extent: Extent, paging: &Paging) -> HandlerResult {
        let columns = self.chosen(paging)?;
        assemble(rows.iter().map(|row| row_of(columns.iter().copied(), row.borrow())), extent, paging)
    }

    fn chosen(&self, paging: &Paging) -> Result<Vec<&Column<T>>, ToolFailure> {
        let Some(wanted) = &paging.fields else { return Ok(self.0.iter().collect()) };
        if let Some(unknown) = wanted.iter().find(|name| !self.0.iter().any(|column| column.name == **name)) {
            let names: Vec<&str> = self.0.iter().map(|column| column.name).collect();
            return Err(ToolFailure::new(
                "invalid_argument",
                format!(
                    "`fields` names `{}`, which this list does not have; it has {}",
                    authz::escape_untrusted(unknown, 64),
                    names.join(", ")
                ),
            )
            .with("field", "fields"));
        }
        Ok(self.0.iter().filter(|column| wanted.iter().any(|name| name == column.name)).collect())
    }

    /// The schema of [`Table::record`].
    pub fn record_schema(&self) -> Value {
        json!({"type": "object", "properties": self.properties()})
    }

    /// The schema of [`Table::page`].
    pub fn list_schema(&self) -> Value {
        let mut schema = self.window_schema();
        schema["required"] = json!(["items", "total", "offset", "limit", "has_more"]);
        schema
    }

    /// The schema of [`Table::window`]: `total` may be missing.
    pub fn window_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"type": "object", "properties": self.properties()}},
                "total": {"type": "integer", "description": "of what this token may see"},
                "offset": {"type": "integer"},
                "limit": {"type": "integer"},
                "has_more": {"type": "boolean"},
                "skipped": {"type": "integer", "description": "unreadable rows of PVE's answer"}
            },
            "required": ["items", "offset", "limit", "has_more"]
        })
    }

    fn properties(&self) -> Map<String, Value> {
        self.0.iter().map(|column| (column.name.to_owned(), column.schema())).collect()
    }
}

/// Those of `rows`, all of them and sorted, that are on the page.
fn part<'r, R>(rows: &'r [R], skipped: usize, paging: &Paging) -> (&'r [R], Extent) {
    let from = usize::try_from(paging.offset).unwrap_or(usize::MAX).min(rows.len());
    let to = from.saturating_add(usize::try_from(paging.limit).unwrap_or(usize::MAX)).min(rows.len());
    let extent =
        Extent { total: Some(rows.len() as u64), more: to < rows.len(), skipped: Some(skipped as u64) };
    (rows.get(from..to).unwrap_or_default(), extent)
}

/// The page of rows that are made already, all of them and sorted; `fields` keeps what it names.
///
/// # Errors
/// A single row exceeds the cap of a result.
pub fn page_of(rows: Vec<Map<String, Value>>, paging: &Paging) -> HandlerResult {
    let total = rows.len() as u64;
    let (offset, limit) = (paging.offset, paging.limit);
    let page = rows
        .into_iter()
        .skip(usize::try_from(offset).unwrap_or(usize::MAX))
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .map(|mut row| {
            if let Some(fields) = &paging.fields {
                row.retain(|name, _| fields.contains(name));
            }
            row
        });
    let extent = Extent { total: Some(total), more: offset.saturating_add(limit) < total, skipped: None };
    assemble(page, extent, paging)
}

/// A page of these rows, or of as many as fit.
fn assemble(
    rows: impl Iterator<Item = Map<String, Value>>,
    extent: Extent,
    paging: &Paging,
) -> HandlerResult {
    let mut items = Vec::new();
    let mut room = shape::ROOM_FOR_ITEMS;
    let mut cut = false;
    for item in rows.map(Value::Object) {
        match room.checked_sub(shape::cost(&item) + 2) {
            Some(left) => room = left,
            None if items.is_empty() => return Err(shape::too_large()),
            None => {
                cut = true;
                break;
            }
        }
        items.push(item);
    }
    let mut out = Map::new();
    out.insert("items".to_owned(), items.into());
    if let Some(total) = extent.total {
        out.insert("total".to_owned(), total.into());
    }
    out.insert("offset".to_owned(), paging.offset.into());
    out.insert("limit".to_owned(), paging.limit.into());
    out.insert("has_more".to_owned(), (cut || extent.more).into());
    if let Some(skipped) = extent.skipped {
        out.insert("skipped".to_owned(), skipped.into());
    }
    Ok(Value::Object(out))
}

fn row_of<'c, T: 'c>(columns: impl Iterator<Item = &'c Column<T>>, row: &T) -> Map<String, Value> {
    columns.filter_map(|column| Some((column.name.to_owned(), column.cell(row)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    static ROWS: Table<(u64, String)> = Table(&[
        integer("vmid", "the number", |row| Some(row.0)),
        text("name", "", |row| Some(row.1.clone())),
        number("cpu", "", |row| (row.0 % 2 == 0).then_some(f64::NAN)),
    ]);

    fn rows(n: u64) -> Vec<(u64, String)> {
        (0..n).map(|i| (100 + i, format!("guest-{i}"))).collect()
    }

    fn paging(offset: u64, limit: u64, fields: Option<&[&str]>) -> Paging {
        let fields = fields.map(|fields| fields.iter().map(|s| (*s).to_owned()).collect());
        Paging { offset, limit, fields }
    }

    fn items(page: &Value) -> &Vec<Value> {
        page["items"].as_array().unwrap()
    }

    #[test]
    fn pages_tile_the_list_and_say_when_there_is_more() {
        let first = ROWS.page(&rows(1000), 0, &paging(0, 500, None)).unwrap();
        assert_eq!(
            (items(&first).len(), &first["has_more"], &first["total"]),
            (500, &true.into(), &1000.into())
        );
        let second = ROWS.page(&rows(1000), 0, &paging(500, 700, None)).unwrap();
        assert_eq!((items(&second).len(), &second["has_more"]), (500, &false.into()));
        assert_eq!(second["items"][0]["vmid"], 600);
        let beyond = ROWS.page(&rows(3), 0, &paging(u64::MAX, 500, None)).unwrap();
        assert_eq!((items(&beyond).len(), &beyond["has_more"]), (0, &false.into()));
    }

    #[test]
    fn fields_keep_only_what_was_asked_for_and_refuse_what_is_not_there() {
        let out = ROWS.page(&rows(1), 0, &paging(0, 500, Some(&["name"]))).unwrap();
        assert_eq!(out["items"][0], json!({"name": "guest-0"}));
        let refused = ROWS.page(&rows(1), 0, &paging(0, 500, Some(&["name", "no_such"]))).unwrap_err();
        assert_eq!(refused.code(), "invalid_argument");
        assert!(
            refused.audit_detail().contains("`no_such`") && refused.audit_detail().contains("vmid, name")
        );
    }

    #[test]
    fn a_number_that_json_cannot_hold_is_left_out() {
        assert_eq!(Value::Object(ROWS.record(&(100, "x".to_owned()))), json!({"vmid": 100, "name": "x"}));
    }

    /// Text and structured copy together; a row full of quotes costs more in the one than in the other.
    #[test]
    fn mc_08_a_page_that_would_exceed_the_cap_ends_early_and_says_so() {
        for fill in ["x", "\"", "\\", "\u{1}", "\u{1F600}"] {
            let wide: Vec<(u64, String)> = (0..700).map(|i| (i, fill.repeat(1000))).collect();
            let out = ROWS.page(&wide, 0, &paging(0, 700, None)).unwrap();
            assert_eq!(out["has_more"], true, "{fill:?}");
            assert!(shape::cost(&out) <= shape::RESULT_CAP, "{fill:?}");
            assert!(shape::cost(&out) > shape::RESULT_CAP * 9 / 10, "{fill:?}");
            let next = items(&out).len() as u64;
            let rest = ROWS.page(&wide, 0, &paging(next, 700, None)).unwrap();
            assert_eq!(rest["items"][0]["vmid"], next, "{fill:?}");
        }
    }

    /// Answering no row and `has_more` would send the caller round in circles.
    #[test]
    fn mc_08_a_row_that_exceeds_the_cap_by_itself_is_refused_with_a_way_out() {
        let huge = [(1, "x".repeat(600 * 1024))];
        assert_eq!(ROWS.page(&huge, 0, &paging(0, 1, None)).unwrap_err().code(), "result_too_large");
        assert!(ROWS.page(&huge, 0, &paging(0, 1, Some(&["vmid"]))).is_ok());
    }
}
