//! Objects that a pickle asks for, recorded and not built.

use crate::error::Error;
use crate::tree::{NONE, PickledValue, ValueId};

use super::machine::{StackMachine, StepResult};
use crate::opcode as op;

impl StackMachine<'_, '_> {
    /// Executes an opcode that names, calls or builds an object: pushes a value that describes it.
    pub(crate) fn object(&mut self) -> StepResult<()> {
        match self.opcode {
            op::GLOBAL => {
                let global = self.named_lines()?;
                self.push(global)
            }
            op::STACK_GLOBAL => {
                let name = self.pop()?;
                let module = self.pop()?;
                if self.tree.bytes(name).is_none() || self.tree.bytes(module).is_none() {
                    return Err(self.malformed("a name that is no text"));
                }
                self.push_new(PickledValue::Global { module, name })
            }
            op::INST => {
                let class = self.named_lines()?;
                let items = self.pop_to_mark()?;
                let args = self.tree.add(PickledValue::Tuple(items));
                self.push_made(class, args, true)
            }
            op::OBJ => {
                let mut items = self.pop_to_mark()?;
                if items.is_empty() {
                    return Err(self.malformed("an object without a class"));
                }
                let class = items.remove(0);
                let args = self.tree.add(PickledValue::Tuple(items));
                self.push_made(class, args, true)
            }
            op::REDUCE | op::NEWOBJ => {
                let args = self.pop()?;
                let class = self.pop()?;
                self.push_made(class, args, self.opcode == op::NEWOBJ)
            }
            op::NEWOBJ_EX => {
                let named = self.pop()?;
                let args = self.pop()?;
                let class = self.pop()?;
                let both = self.tree.add(PickledValue::Tuple(vec![args, named]));
                self.push_made(class, both, true)
            }
            op::BUILD => {
                let given = self.pop()?;
                let top = self.top()?;
                match &mut self.tree.nodes[top as usize] {
                    PickledValue::Object { state, .. } => *state = given,
                    _ => return Err(self.malformed("a state for what is no object")),
                }
                Ok(())
            }
            op::BINPERSID => {
                let id = self.pop()?;
                self.push_new(PickledValue::Persistent(id))
            }
            op::PERSID => {
                let id = self.text_of_line()?;
                self.push_new(PickledValue::Persistent(id))
            }
            other => Err(self.refuse(other)),
        }
    }

    fn push_made(&mut self, class: ValueId, args: ValueId, is_new: bool) -> StepResult<()> {
        self.push_new(PickledValue::Object {
            class,
            args,
            state: NONE,
            items: NONE,
            pairs: NONE,
            is_new,
        })
    }

    fn named_lines(&mut self) -> StepResult<ValueId> {
        let module = self.text_of_line()?;
        let name = self.text_of_line()?;
        Ok(self.tree.add(PickledValue::Global { module, name }))
    }

    fn text_of_line(&mut self) -> Result<ValueId, Error> {
        let start = self.at;
        let len = self.line()?.len();
        Ok(self.tree.text_at(start, len))
    }
}
