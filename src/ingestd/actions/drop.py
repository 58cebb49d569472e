"""`drop`: remove a table; one that is not there is fine."""

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.rules.actions import DropRequest


async def run(ctx: ActionContext, step: Step, request: DropRequest) -> Outcome:
    table = ctx.table(request.table, request.project_id)
    dropped = await ctx.warehouse.delete_table(table)
    return Outcome(details={"table": str(table), "dropped": dropped})
