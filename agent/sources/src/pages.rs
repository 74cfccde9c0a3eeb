//! Lists in pages.

use proto_node::meta::{ListMeta, ObjectMeta};

use crate::error::ApiError;
use crate::watch::Watched;

/// Tokens longer than this are none of ours.
const LONGEST_TOKEN: usize = 1024;

/// Where a page ended. Nothing is kept for it in the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The version of the first page.
    version: u64,
    /// Namespace and name of the last object of the page.
    last: (String, String),
}

impl Token {
    /// Reads `continue` of a request; empty is the first page.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, ApiError> {
        if text.is_empty() {
            return Ok(None);
        }
        let parts = (text.len() <= LONGEST_TOKEN)
            .then(|| {
                let mut parts = text.splitn(3, '/');
                let version = parts.next()?.parse().ok()?;
                let last = (parts.next()?.to_owned(), parts.next()?.to_owned());
                Some(Self { version, last })
            })
            .flatten();
        parts.map(Some).ok_or_else(|| {
            let text = "continue is no token of this agent: give metadata.continue of the page before, or \
                        nothing to begin anew";
            ApiError::BadRequest(String::from(text))
        })
    }
}

/// A page in the making: at most `limit` (0: all) of the objects after the page before, which come by namespace and name.
pub(crate) struct Pager {
    after: Option<Token>,
    left: u32,
    last: (String, String),
    remaining: u64,
}

impl Pager {
    pub(crate) fn new(limit: u32, after: Option<Token>) -> Self {
        Self {
            after,
            left: if limit == 0 { u32::MAX } else { limit },
            last: <(String, String)>::default(),
            remaining: 0,
        }
    }

    /// Whether the next object is on the page.
    pub(crate) fn takes(&mut self, object: &ObjectMeta) -> bool {
        let key = (object.namespace.as_str(), object.name.as_str());
        let is_later = |token: &Token| key > (token.last.0.as_str(), token.last.1.as_str());
        if !self.after.as_ref().is_none_or(is_later) {
            return false;
        }
        if self.left == 0 {
            self.remaining += 1;
            return false;
        }
        self.left -= 1;
        key.0.clone_into(&mut self.last.0);
        key.1.clone_into(&mut self.last.1);
        true
    }

    /// What a list says of the page once all objects were asked about; `version` is that of the store.
    pub(crate) fn metadata(self, version: u64) -> ListMeta {
        let version = self.after.map_or(version, |token| token.version);
        let mut metadata = ListMeta {
            resource_version: version.to_string(),
            ..ListMeta::default()
        };
        if self.remaining > 0 {
            let (namespace, name) = self.last;
            metadata.r#continue = format!("{version}/{namespace}/{name}");
            metadata.remaining_item_count = i64::try_from(self.remaining).ok();
        }
        metadata
    }
}

/// One page of objects that match.
pub(crate) fn page<T: Watched>(
    objects: impl Iterator<Item = T>,
    limit: u32,
    after: Option<Token>,
    version: u64,
) -> (ListMeta, Vec<T>) {
    let mut pager = Pager::new(limit, after);
    let is_taken = |object: &T| object.metadata().is_some_and(|it| pager.takes(it));
    let items = objects.filter(is_taken).collect();
    (pager.metadata(version), items)
}

#[cfg(test)]
mod tests {
    use proto_node::node::Object;
    use proto_node::vmi::VirtualMachineInstance;

    use super::*;

    fn vmi((namespace, name): (&str, &str)) -> Object {
        Object::from(VirtualMachineInstance {
            metadata: Some(ObjectMeta {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                ..ObjectMeta::default()
            }),
            ..VirtualMachineInstance::default()
        })
    }

    fn key(object: &Object) -> (String, String) {
        let metadata = object.metadata().expect("has metadata");
        (metadata.namespace.clone(), metadata.name.clone())
    }

    const ALL: [(&str, &str); 5] = [("a", "x"), ("a", "x.y"), ("b", "a"), ("b", "b"), ("c", "a")];

    #[test]
    fn pages_together_are_the_list_whatever_their_size() {
        for limit in 0..7 {
            let (mut seen, mut token) = (Vec::new(), String::new());
            loop {
                let after = Token::parse(&token).expect("a token");
                let page = page(
                    ALL.into_iter().map(vmi),
                    limit,
                    after,
                    40 + u64::from(limit),
                );
                let (metadata, items) = page;
                seen.extend(items.iter().map(key));
                let remaining = metadata.remaining_item_count.unwrap_or_default();
                assert_eq!(
                    seen.len() + usize::try_from(remaining).expect("few"),
                    ALL.len()
                );
                token = metadata.r#continue;
                if token.is_empty() {
                    break;
                }
            }
            let wanted = ALL.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
            assert_eq!(seen, wanted);
        }
    }

    #[test]
    fn later_pages_have_the_version_of_the_first_and_bear_what_changed() {
        let first = page(ALL.into_iter().map(vmi), 2, None, 7);
        let token = first.0.r#continue;
        let after = Token::parse(&token).expect("a token");
        // The last object of the page is gone, and there is a new one.
        let now = [("a", "x"), ("a", "z"), ("b", "a")];
        let second = page(now.into_iter().map(vmi), 0, after, 9);
        let names: Vec<_> = second.1.iter().map(|object| key(object).1).collect();
        assert_eq!(names, ["z", "a"]);
        assert_eq!(second.0.resource_version, "7");
    }

    #[test]
    fn a_token_that_is_none_is_refused() {
        for text in ["x", "1", "1/a", "-1/a/b", &"1/".repeat(600)] {
            assert!(Token::parse(text).is_err(), "{text}");
        }
    }
}
