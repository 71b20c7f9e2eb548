from tests.server.live import *
def test_it(tmp_path):
    async def s(live):
        k = await live.kernel()
        for _ in range(30):
            await asyncio.sleep(0.4)
            h = live.holder(k)
            print(h["state"], h["reaper"].get("sentence"), live.actions())
            if live.actions()[-1:]: pass
    play(tmp_path, s, action="shutdown")
