//! Properties of patches and of the collection of garbage, over arbitrary values.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use agent_objects::{
    ORPHAN_FINALIZER, Object, ObjectId, Part, Write, collect, merge_patch, three_way,
};
use proptest::prelude::*;
use proto_node::meta::OwnerReference;
use serde_json::{Map, Value};

/// JSON objects without `null`, which no object in canonical form holds.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0..3).prop_map(Value::from),
        proptest::collection::vec((0..3).prop_map(Value::from), 0..3).prop_map(Value::Array),
    ];
    let inner = leaf.prop_recursive(3, 24, 4, |inner| {
        proptest::collection::btree_map("[a-d]", inner, 0..4)
            .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()))
    });
    proptest::collection::btree_map("[a-d]", inner, 0..4)
        .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()))
}

/// Whether `value` has all that `wanted` has.
fn has(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| value.get(name).is_some_and(|value| has(value, wanted))),
        (value, wanted) => value == wanted,
    }
}

proptest! {
    #[test]
    fn an_apply_has_all_that_is_wanted_and_applying_again_changes_nothing(
        last in tree(), current in tree(), wanted in tree()
    ) {
        let mut value = current.clone();
        merge_patch(&mut value, &three_way(&last, &current, &wanted));
        prop_assert!(has(&value, &wanted), "{value} lacks some of {wanted}");
        for name in last.as_object().into_iter().flat_map(Map::keys) {
            prop_assert!(wanted.get(name).is_some() || value.get(name).is_none(), "{name}");
        }
        for (name, present) in current.as_object().into_iter().flatten() {
            if last.get(name).is_none() && wanted.get(name).is_none() {
                prop_assert_eq!(value.get(name), Some(present));
            }
        }
        let again = three_way(&wanted, &value, &wanted);
        prop_assert_eq!(again, Value::Object(Map::new()));
    }

    #[test]
    fn a_merge_patch_twice_is_the_same_as_once(target in tree(), patch in tree()) {
        let mut once = target;
        merge_patch(&mut once, &patch);
        let mut twice = once.clone();
        merge_patch(&mut twice, &patch);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn garbage_is_all_that_has_no_owner_left_and_collecting_it_ends(
        owners in proptest::collection::vec(
            (proptest::collection::vec(0_usize..12, 0..3), any::<bool>(), 0_u8..8), 1..12
        )
    ) {
        let mut world = world(&owners);
        for _ in 0..=owners.len() * 2 {
            let writes = garbage(&world);
            if writes.is_empty() {
                break;
            }
            for write in writes {
                carry_out(&mut world, write)?;
            }
        }
        prop_assert_eq!(garbage(&world), []);
        for object in world.values() {
            let owners = &object.metadata.owner_references;
            let is_owned = owners.iter().any(|owner| exists(&world, owner));
            prop_assert!(owners.is_empty() || is_owned, "{object:?}");
            prop_assert!(object.metadata.finalizers.is_empty(), "{object:?}");
        }
    }
}

/// Whatever is not there is gone.
fn garbage(world: &BTreeMap<ObjectId, Object>) -> Vec<Write> {
    collect(world.values(), |_| true)
}

fn name(number: usize) -> String {
    format!("thing-{number}")
}

/// Objects that own each other, in cycles too. Some owners were never there; some are orphaning what they own.
fn world(owners: &[(Vec<usize>, bool, u8)]) -> BTreeMap<ObjectId, Object> {
    let objects = owners
        .iter()
        .enumerate()
        .map(|(number, (owned_by, other, fate))| {
            let mut object = Object {
                kind: String::from("Thing"),
                ..Object::default()
            };
            object.metadata.name = name(number);
            object.metadata.namespace = String::from("default");
            object.metadata.uid = format!("uid-{number}");
            let references = owned_by.iter().map(|owner| OwnerReference {
                kind: String::from("Thing"),
                name: name(*owner),
                uid: if *other {
                    String::from("other")
                } else {
                    format!("uid-{owner}")
                },
                ..OwnerReference::default()
            });
            object.metadata.owner_references = references.collect();
            if *fate == 0 {
                object.metadata.deletion_timestamp = String::from("now");
                object.metadata.finalizers = vec![ORPHAN_FINALIZER.to_owned()];
            }
            (object.id(), object)
        });
    objects.collect()
}

fn exists(world: &BTreeMap<ObjectId, Object>, owner: &OwnerReference) -> bool {
    world
        .values()
        .any(|object| object.metadata.uid == owner.uid)
}

fn carry_out(
    world: &mut BTreeMap<ObjectId, Object>,
    write: Write,
) -> Result<(), proptest::test_runner::TestCaseError> {
    match write {
        Write::Delete { id, .. } => {
            let gone = world.remove(&id).expect("what is deleted is there");
            let owners = &gone.metadata.owner_references;
            prop_assert!(!owners.is_empty(), "{gone:?}");
            let owned = owners
                .iter()
                .any(|owner| exists(world, owner) && owner.uid != gone.metadata.uid);
            prop_assert!(!owned, "{gone:?} still has an owner");
        }
        Write::Patch {
            id, part, patch, ..
        } => {
            prop_assert_eq!(part, Part::Main);
            let mut value = world[&id].to_json();
            merge_patch(&mut value, &patch);
            let object = Object::from_json(value).expect("an object");
            if object.is_deleted() && object.metadata.finalizers.is_empty() {
                world.remove(&id);
            } else {
                world.insert(id, object);
            }
        }
        Write::Create(object) => panic!("{object:?}"),
    }
    Ok(())
}
