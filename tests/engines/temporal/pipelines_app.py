"""An app for the dispatch file of seed 001: a router, and activities of three pools."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from penstock import Penstock, activity, workflow


@dataclass
class Assignment:
    llm_handle: str
    prompt: str = ""


def _who() -> dict[str, Any]:
    info = activity.info()
    return {"queue": info.task_queue, "pid": os.getpid(), "attempt": info.attempt}


@activity.defn(routing_key="llm_handle")
async def act_llm_gen_text(assignment: Assignment) -> dict[str, Any]:
    return _who() | {"text": f"{assignment.llm_handle}: {assignment.prompt}"}


@activity.defn
def act_img_gen_images(prompt: str) -> dict[str, Any]:
    return _who() | {"text": prompt}


@activity.defn
async def act_jinja2_gen_text(template: str) -> dict[str, Any]:
    return _who() | {"text": template}


@workflow.defn
class WfPipeRouter:
    """Calls a language model and an image generator. Queues, timeouts and retries are those of the file."""

    @workflow.run
    async def run(self, handle: str) -> dict[str, Any]:
        assignment = Assignment(handle, "translate")
        text = await workflow.execute_activity(
            act_llm_gen_text, assignment, summary=f"LLM text · pipe=translate_doc · model={handle}"
        )
        image = await workflow.execute_activity(act_img_gen_images, "a lighthouse")
        return {"text": text, "image": image}


app = Penstock("pipelines")
app.add(workflows=[WfPipeRouter], activities=[act_llm_gen_text, act_img_gen_images, act_jinja2_gen_text])
