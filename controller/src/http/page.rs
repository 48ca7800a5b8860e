//! Pagination of lists: `limit` and `cursor` in the query, the next page in the header `link` (RFC 8288) as `rel="next"`.
//!
//! The body stays the plain list, so a client can ignore pages, or follow the links to get everything. A cursor identifies the row after which the
//! next page begins, not a number of rows to skip: rows that come and go meanwhile neither duplicate nor hide others.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use url::form_urlencoded;
use utoipa::IntoParams;

use crate::Error;
use crate::settings::ApiSettings;

/// The longest cursor.
const CURSOR_MAX: usize = 512;

/// Parameters for a page of a list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParams {
    /// The most rows.
    #[param(minimum = 1)]
    pub(crate) limit: Option<u32>,
    /// Where the page begins: from the `link` of the page before.
    pub(crate) cursor: Option<String>,
}

/// A requested page, validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    /// The key of the last row of the page before; empty for the first page.
    pub(crate) after: String,
    limit: u32,
}

impl PageParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// When the limit is out of range or the cursor is not valid.
    pub(crate) fn validate(&self, settings: &ApiSettings) -> Result<PageRequest, Error> {
        let limit = self.limit.unwrap_or(settings.page);
        if !(1..=settings.page_max).contains(&limit) {
            return Err(Error::BadRequest(format!(
                "limit: from 1 to {}, not {limit}",
                settings.page_max
            )));
        }
        let bad =
            || Error::BadRequest("cursor: take it from the link of the page before".to_owned());
        let after = match &self.cursor {
            None => String::new(),
            Some(cursor) if cursor.len() > CURSOR_MAX => return Err(bad()),
            Some(cursor) => hex::decode(cursor)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(bad)?,
        };
        Ok(PageRequest { after, limit })
    }
}

impl PageRequest {
    /// The number of rows to read: one more than are shown, to find out whether there is a next page.
    pub(crate) const fn rows(&self) -> u32 {
        self.limit + 1
    }

    /// The rows to read from a complete list, in the order of `key`.
    pub(crate) fn cut<T>(&self, rows: Vec<T>, key: impl Fn(&T) -> String) -> Vec<T> {
        rows.into_iter()
            .filter(|row| self.after.is_empty() || key(row) > self.after)
            .take(self.rows() as usize)
            .collect()
    }

    /// The most rows of the page.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// The number of rows before the page, for lists whose rows have no key.
    ///
    /// # Errors
    /// When the cursor is not valid.
    pub(crate) fn from(&self) -> Result<u64, Error> {
        match self.after.as_str() {
            "" => Ok(0),
            text => text.parse().map_err(|_| {
                Error::BadRequest("cursor: take it from the link of the page before".to_owned())
            }),
        }
    }

    /// The response with a part of a larger object; with a next page, `next` is the number of rows before it.
    pub(crate) fn part<T: Serialize>(
        request: &HttpRequest,
        value: &T,
        next: Option<u64>,
    ) -> HttpResponse {
        let mut response = HttpResponse::Ok();
        if let Some(before) = next {
            let target = self::next(request, &hex::encode(before.to_string()));
            response.insert_header((header::LINK, format!("<{target}>; rel=\"next\"")));
        }
        response.json(value)
    }

    /// The response with the rows that were read, at most [`Self::rows`], and the link to the next page.
    pub(crate) fn answer<T: Serialize>(
        &self,
        request: &HttpRequest,
        mut rows: Vec<T>,
        key: impl Fn(&T) -> String,
    ) -> HttpResponse {
        let more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let mut response = HttpResponse::Ok();
        if let Some(last) = rows.last().filter(|_| more) {
            let next = next(request, &hex::encode(key(last)));
            response.insert_header((header::LINK, format!("<{next}>; rel=\"next\"")));
        }
        response.json(rows)
    }
}

/// The request's own path and query with another cursor.
fn next(request: &HttpRequest, cursor: &str) -> String {
    let others = form_urlencoded::parse(request.query_string().as_bytes())
        .filter(|(key, _)| key != "cursor");
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(others)
        .append_pair("cursor", cursor)
        .finish();
    format!("{}?{query}", request.path())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use proptest::prelude::*;

    use super::*;

    fn wanted(limit: u32, cursor: Option<&str>) -> Result<PageRequest, Error> {
        let params = PageParams {
            limit: Some(limit),
            cursor: cursor.map(str::to_owned),
        };
        params.validate(&ApiSettings::default())
    }

    #[test]
    fn limits_and_cursors_are_checked() {
        assert!(wanted(0, None).is_err() && wanted(1001, None).is_err());
        assert!(wanted(1, Some("zz")).is_err() && wanted(1, Some(&"0".repeat(514))).is_err());
        assert_eq!(wanted(1, Some("6162")).expect("a cursor").after, "ab");
    }

    #[test]
    fn the_link_keeps_what_else_was_asked() {
        let request =
            TestRequest::with_uri("/v1/apps?tenant=a%20b&cursor=00&limit=1").to_http_request();
        assert_eq!(
            next(&request, "6162"),
            "/v1/apps?tenant=a+b&limit=1&cursor=6162"
        );
    }

    proptest! {
        #[test]
        fn pages_together_are_the_list(rows in prop::collection::btree_set("[a-z]{1,8}", 0..50), limit in 1u32..10) {
            let all: Vec<String> = rows.into_iter().collect();
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = wanted(limit, cursor.as_deref()).expect("valid");
                let mut rows = page.cut(all.clone(), Clone::clone);
                let more = rows.len() > limit as usize;
                rows.truncate(limit as usize);
                cursor = rows.last().map(hex::encode);
                seen.extend(rows);
                if !more {
                    break;
                }
            }
            prop_assert_eq!(seen, all);
        }
    }
}
