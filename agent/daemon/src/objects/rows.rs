//! Objects of any kind and their rows in the ledger. What is confidential is encrypted here, before a transaction sees it.

use std::borrow::Cow;

use agent_objects::{Encoding, Kinds, LastText, Object, ObjectKind, Refusal, Writer, set_live};
use agent_sources::{ApiError, Choice, Forms, ObjectText, ObjectsListed};
use agent_store::{Sealed, ShownObject, StoredObject};
use prost::bytes::Bytes;
use proto_node::from_json;
use proto_node::meta::ObjectMeta;
use proto_node::vmi::VirtualMachineInstance;
use serde::Serializer;
use sha2::{Digest, Sha256};

use super::{Objects, refused};
use crate::error::WriteError;
use crate::object;
use crate::secrets::{ObjectIdentity, SealError};

/// How much of an object is known, or has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// All but what is encrypted, which stays as it is.
    Head,
}

impl Objects {
    /// The object of a row, and how much of it: where the head is enough, what cannot be decrypted is left out.
    pub(super) fn read_as_far(
        &self,
        kind: &ObjectKind,
        row: &StoredObject,
        needed: Extent,
    ) -> Result<(Object, Extent), ApiError> {
        match self.read(kind, row) {
            Err(_) if needed == Extent::Head && row.sealed.is_some() => {
                let head = Kinds::this_release().from_wire(kind, &row.object);
                let head = head.map_err(|error| undecodable(row, &error))?;
                Ok((head, Extent::Head))
            }
            read => Ok((read?, Extent::Whole)),
        }
    }

    /// The object of a row.
    pub(super) fn read(&self, kind: &ObjectKind, row: &StoredObject) -> Result<Object, ApiError> {
        let object = Kinds::this_release().from_wire(kind, &self.whole(kind, row)?);
        object.map_err(|error| undecodable(row, &error))
    }

    /// The same in the forms that are wanted, and no other.
    pub(super) fn text(
        &self,
        (kind, forms): (&ObjectKind, Forms),
        row: &StoredObject,
        last: &mut LastText,
    ) -> Result<ObjectText, ApiError> {
        let mut text = ObjectText {
            metadata: object::metadata_of(row)?,
            json: None,
            message: None,
        };
        if forms == Forms::default() {
            // Nothing is decrypted for metadata.
            return Ok(text);
        }
        let whole = self.whole(kind, row)?;
        if forms.json {
            let json = Kinds::this_release().text_from_wire(kind, &whole, last);
            text.json = Some(json.map_err(|error| undecodable(row, &error))?);
        }
        text.message = forms.message.then(|| whole.into_owned());
        Ok(text)
    }

    /// The objects of a kind that are chosen, in the encoding of the choice.
    pub(super) fn encoded_of(
        &self,
        kind: &ObjectKind,
        namespace: Option<&str>,
        choice: &mut dyn Choice,
    ) -> Result<ObjectsListed<Bytes>, ApiError> {
        // Thousands of objects in one piece: none is allocated, and copied, for itself.
        let (mut all, mut ends, mut last) = (Vec::new(), Vec::new(), LastText::default());
        let encoding = choice.encoding();
        let version = self
            .store
            .ledger()
            .show_each((kind.kind, namespace), |shown| {
                let metadata = object::selectable(shown.object())?;
                if !choice.wants(&metadata) {
                    return Ok(());
                }
                let start = all.len();
                if encoding == Encoding::Json || choice.reads_text() {
                    self.append_text(kind, shown, (&mut last, &mut all))?;
                }
                let is_kept = choice.keeps(&metadata, all.get(start..).unwrap_or_default());
                if !is_kept || encoding == Encoding::Protobuf {
                    all.truncate(start);
                }
                if is_kept && encoding == Encoding::Protobuf {
                    self.append_message(kind, shown, &mut all)?;
                }
                if is_kept {
                    ends.push(all.len());
                }
                Ok::<_, WriteError>(())
            })?;
        let mut all = Bytes::from(all);
        let mut start = 0;
        let items = ends.into_iter().map(|end| {
            let one = all.split_to(end - start);
            start = end;
            one
        });
        Ok(ObjectsListed {
            version,
            items: items.collect(),
        })
    }

    fn append_message(
        &self,
        kind: &ObjectKind,
        shown: ShownObject<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), WriteError> {
        if shown.is_sealed() {
            out.extend_from_slice(&self.whole(kind, &shown.to_stored()?)?);
        } else {
            out.extend_from_slice(shown.object());
        }
        Ok(())
    }

    fn append_text(
        &self,
        kind: &ObjectKind,
        shown: ShownObject<'_>,
        out: (&mut LastText, &mut Vec<u8>),
    ) -> Result<(), WriteError> {
        let kinds = Kinds::this_release();
        let written = if shown.is_sealed() {
            let row = shown.to_stored()?;
            kinds.append_text(kind, &self.whole(kind, &row)?, out)
        } else {
            kinds.append_text(kind, shown.object(), out)
        };
        match written {
            Ok(()) => Ok(()),
            Err(error) => Err(undecodable(&shown.to_stored()?, &error).into()),
        }
    }

    /// The bytes of a row's object, with what is confidential.
    fn whole<'a>(
        &self,
        kind: &ObjectKind,
        row: &'a StoredObject,
    ) -> Result<Cow<'a, [u8]>, ApiError> {
        Ok(match &row.sealed {
            None => Cow::Borrowed(row.object.as_slice()),
            Some(sealed) => {
                let mut whole = row.object.clone();
                whole.extend(self.opened(kind, row, sealed)?);
                Cow::Owned(whole)
            }
        })
    }

    /// The row of an object in the place of another one's, or of none.
    pub(super) fn row_of(
        &self,
        kind: &ObjectKind,
        present: Option<&StoredObject>,
        (object, extent): (&Object, Extent),
        version: u64,
    ) -> Result<StoredObject, ApiError> {
        if let (Extent::Head, Some(present)) = (extent, present) {
            return Ok(StoredObject {
                generation: object.metadata.generation,
                resource_version: version,
                object: wire(kind, object)?,
                ..present.clone()
            });
        }
        if let (Writer::Guests, Some(present)) = (kind.writer, present) {
            // Only its metadata and what is live can have changed. The rest stays byte for byte as it was admitted.
            let mut vmi = object::vmi(present)?;
            vmi.metadata = Some(object.metadata.clone());
            let changed: VirtualMachineInstance =
                from_json(object.to_json()).map_err(|errors| {
                    refused(kind, &object.metadata.name, Refusal::Malformed(errors))
                })?;
            set_live(&mut vmi, &changed);
            return Ok(object::row(vmi, version));
        }
        let spec = spec_text(kind, object);
        let mut row = StoredObject {
            uid: object.metadata.uid.clone(),
            generation: object.metadata.generation,
            resource_version: version,
            ..StoredObject::default()
        };
        if kind.confidential.is_empty() {
            row.spec_digest = Sha256::digest(spec).to_vec();
            row.object = wire(kind, object)?;
            return Ok(row);
        }
        let key = self.store.secrets().key()?;
        let head = Object {
            content: serde_json::Map::new(),
            ..object.clone()
        };
        let rest = Object {
            metadata: ObjectMeta::default(),
            ..object.clone()
        };
        let sealed = key.seal(&place(&object.metadata, kind), wire(kind, &rest)?);
        row.spec_digest = key.digest(&spec);
        row.object = wire(kind, &head)?;
        row.sealed = Some(sealed.map_err(|error| not_sealed(&row, error))?);
        Ok(row)
    }

    fn opened(
        &self,
        kind: &ObjectKind,
        row: &StoredObject,
        sealed: &Sealed,
    ) -> Result<Vec<u8>, ApiError> {
        let metadata = object::metadata_of(row)?;
        let opened = self
            .store
            .secrets()
            .key()?
            .open(&place(&metadata, kind), sealed);
        opened.map_err(|error| not_sealed(row, error))
    }
}

fn place<'a>(metadata: &'a ObjectMeta, kind: &ObjectKind) -> ObjectIdentity<'a> {
    ObjectIdentity {
        kind: kind.kind,
        namespace: &metadata.namespace,
        name: &metadata.name,
        uid: &metadata.uid,
    }
}

/// All of an object but metadata and status as JSON, for its digest.
fn spec_text(kind: &ObjectKind, object: &Object) -> Vec<u8> {
    let is_spec = |name: &String| !kind.has_status || name != "status";
    let members = object.content.iter().filter(|(name, _)| is_spec(name));
    let mut text = Vec::new();
    let written = serde_json::Serializer::new(&mut text).collect_map(members);
    written.expect("a vector takes all that is written");
    text
}

fn wire(kind: &ObjectKind, object: &Object) -> Result<Vec<u8>, ApiError> {
    let bytes = Kinds::this_release().to_wire(kind, object);
    bytes.map_err(|error| refused(kind, &object.metadata.name, error))
}

fn not_sealed(row: &StoredObject, error: SealError) -> ApiError {
    ApiError::Internal(format!("the object with uid {}: {error}", row.uid))
}

fn undecodable(row: &StoredObject, error: &agent_objects::Refusal) -> ApiError {
    ApiError::Internal(format!(
        "the object with uid {} cannot be decoded: {error}",
        row.uid
    ))
}
